//! A store behind an object store: one list of requirements, run over a folder, memory and a real S3 server.

mod cases;
mod cuts;
mod faults;
mod refusals;
mod s3;
mod takeover;
mod world;

use std::sync::Arc;

use harness::{Failure, TestS3, s3::BUCKET, s3::KEY, s3::SECRET};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use world::Bucket;

/// Every requirement, each under a prefix of its own.
async fn all(bucket: &Bucket) -> Result<(), Failure> {
    cases::sealed_files_become_objects_under_plain_names_and_come_back_when_they_are_read(&bucket.under("return"))
        .await?;
    cases::many_readers_of_one_file_wait_for_one_download(&bucket.under("single")).await?;
    cases::the_same_folder_goes_on_where_it_was(&bucket.under("again")).await?;
    cases::an_expired_object_is_deleted_after_its_record_and_a_grace(&bucket.under("expired")).await?;
    cases::a_damaged_object_makes_answers_partial_and_never_wrong(&bucket.under("damaged")).await?;
    cases::one_that_only_reads_follows_and_takes_no_rows(&bucket.under("reader")).await?;
    cases::opening_reads_a_checkpoint_and_few_records(&bucket.under("checkpoint")).await?;
    takeover::a_new_machine_serves_what_was_uploaded_and_stores_the_rest_once(&bucket.under("lost")).await?;
    takeover::a_second_writer_pushes_the_first_out_by_name(&bucket.under("fenced")).await?;
    takeover::a_store_that_was_local_knows_its_batches_once_they_are_uploaded(&bucket.under("legacy")).await?;
    takeover::a_copy_serves_the_same_rows_and_knows_the_same_batches(&bucket.under("copy")).await?;
    takeover::a_store_that_sent_to_a_collector_is_copied_once_it_no_longer_does(&bucket.under("sent")).await?;
    takeover::a_check_finds_what_is_in_the_bucket_only_and_what_is_nowhere(&bucket.under("check")).await?;
    takeover::a_repair_of_a_damaged_copy_loses_no_row_and_no_object(&bucket.under("repair")).await?;
    takeover::a_folder_of_another_store_is_refused(&bucket.under("other")).await?;
    cuts::rows_of_open_files_outlive_the_machine_and_go_on_in_the_same_file(&bucket.under("open")).await?;
    cuts::a_machine_that_comes_back_goes_on_and_uploads_only_what_is_new(&bucket.under("back")).await?;
    cuts::a_take_over_cut_short_before_its_checkpoint_forgets_nothing(&bucket.under("short")).await?;
    cuts::rows_that_were_dated_anew_and_other_partitions_are_known_after_a_take_over(&bucket.under("dated")).await?;
    cuts::a_catalogue_made_anew_beside_its_bucket_has_every_row_once(&bucket.under("rebuilt")).await?;
    cuts::producers_are_told_what_the_bucket_has_where_that_is_the_floor(&bucket.under("floor")).await?;
    cuts::a_reader_follows_cuts_and_sees_each_row_once_over_a_seal(&bucket.under("cuts")).await?;
    cuts::late_rows_of_a_past_hour_come_into_a_small_object_that_is_there(&bucket.under("small")).await?;
    cuts::settings_that_change_between_a_kill_and_a_start_lose_and_double_nothing(&bucket.under("changed")).await?;
    cuts::a_reader_that_is_an_hour_behind_says_so_and_is_right_after_its_next_look(&bucket.under("behind")).await?;
    cuts::a_reader_that_is_cut_off_amid_its_records_misses_none_of_them(&bucket.under("amid")).await?;
    cuts::cuts_are_made_by_the_interval_and_an_idle_store_makes_none(&bucket.under("interval")).await?;
    cuts::a_take_over_that_ends_at_any_call_is_finished_by_the_next_start(&bucket.under("steps")).await?;
    cuts::a_commit_that_comes_late_does_not_fence_its_own_writer(&bucket.under("late")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requirements_hold_in_a_folder() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(LocalFileSystem::new_with_prefix(folder.path())?);
    all(&Bucket::new(store, None)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requirements_hold_in_memory() -> Result<(), Failure> {
    let store = Arc::new(InMemory::new());
    all(&Bucket::new(Arc::clone(&store) as _, Some(store))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requirements_hold_on_s3() -> Result<(), Failure> {
    let server = TestS3::start().await?;
    let store = server.client(BUCKET, KEY, SECRET)?;
    all(&Bucket::new(Arc::clone(&store) as _, Some(store))).await
}
