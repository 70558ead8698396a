//! A store behind an object store: one list of requirements, run over a folder, memory and a real S3 server.

mod cases;
mod faults;
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
    takeover::a_check_finds_what_is_in_the_bucket_only_and_what_is_nowhere(&bucket.under("check")).await?;
    takeover::a_folder_of_another_store_is_refused(&bucket.under("other")).await
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
