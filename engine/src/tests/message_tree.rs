//! Business messages: a tree of their own, with a folder for each spec.

use ::model::batch::{MessageRow, messages as message_batch};
use ::model::{FluxId, MessageDirection, SpanStatus};

use super::*;
use crate::{PartitionBy, SpecName, check_store, rebuild_catalogue};

pub(super) fn row(bench: &Bench, n: u64) -> MessageRow {
    let ts = Timestamp::from_micros(bench.now());
    MessageRow {
        ts,
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        flux_id: FluxId::at(ts, [u8::try_from(n).unwrap(); 10]),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        src_gear_id: "parse".to_owned(),
        dst_gear_id: None,
        msg_type: "out".to_owned(),
        direction: MessageDirection::Outbound,
        status: SpanStatus::Ok,
        raw_msg: vec![0, 159, 146, 150],
        promoted: Attributes::new(),
    }
}

fn of(bench: &Bench, n: u64) -> AppendBatch {
    let rows = message_batch(&[row(bench, n)]).unwrap();
    AppendBatch {
        table: Table::Messages,
        origin: from_bus(n),
        payload: encode_arrow(std::slice::from_ref(&rows)).unwrap().into(),
        rows: vec![rows],
    }
}

pub(super) fn count(view: &ReadView) -> usize {
    let hot: usize = view.hot(Table::Messages).iter().map(|hot| hot.batch.num_rows()).sum();
    let cold = view.files(Table::Messages).iter().flat_map(|file| read(file));
    hot + cold.map(|batch| batch.num_rows()).sum::<usize>()
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_lie_in_their_own_tree_each_spec_in_its_folder_and_survive_any_end() {
    for (by, folder) in [(PartitionBy::Hour, "2026/11/21/12"), (PartitionBy::Day, "2026/11/21")] {
        let mut bench = Bench::new();
        bench.settings.partition_by = by;
        let spec: SpecName = "order_paid".parse().unwrap();
        let engine = bench.open().await;
        engine.append(of(&bench, 1)).await.unwrap();
        engine.append_of_specs(of(&bench, 2), vec![Some(spec)]).await.unwrap();
        let again = engine.append_of_specs(of(&bench, 2), vec![Some(spec)]).await.unwrap();
        assert_eq!(again, AppendOutcome::Duplicate);
        drop(engine);
        let engine = bench.open().await;
        assert_eq!((stats(&engine).replayed_rows, count(&engine.view())), (2, 2));
        engine.flush().await.unwrap();
        let root = &bench.settings.messages_dir;
        let tree: Vec<_> = files_below(root)
            .iter()
            .map(|path| path.strip_prefix(root).unwrap().to_owned())
            .collect();
        let wanted = [
            format!("fluxSpec/order_paid/{folder}/order_paid_001.parquet"),
            format!("generic/{folder}/fluxmsg_001.parquet"),
        ];
        assert_eq!(tree, wanted.map(PathBuf::from));
        assert!(bench.tree().is_empty(), "nothing of it lies among the telemetry");
        engine.close().await.unwrap();
        assert_eq!(check_store(&bench.settings, true, |_, _| {}).unwrap().files, 2);
        std::fs::remove_dir_all(bench.settings.store_dir.join("meta")).unwrap();
        let now = Timestamp::from_micros(bench.now());
        let report = rebuild_catalogue(&bench.settings, now, |_, _| {}).unwrap();
        assert_eq!(
            (report.files, report.rows, report.problems.len(), report.strangers.len()),
            (2, 2, 0, 0)
        );
        let engine = bench.open().await;
        assert_eq!(count(&engine.view()), 2);
        let row = row_json(&read(&engine.view().files(Table::Messages)[0])[0], 0);
        assert_eq!(
            (row["raw_msg"].as_str(), row["direction"].as_str()),
            (Some("009f9296"), Some("outbound"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_messages_have_a_spec() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let spec = "a".parse().unwrap();
    let refused = engine
        .append_of_specs(batch("a", &[bench.now()], BatchOrigin::default()), vec![Some(spec)])
        .await;
    assert!(matches!(refused, Err(Error::Rows { .. })), "{refused:?}");
}
