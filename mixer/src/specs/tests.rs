//! A folder of spec files over changes, mistakes and restarts.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};

use model::spec::FieldType;

use super::*;

struct SpecFixture {
    dir: tempfile::TempDir,
}

impl SpecFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("specs")).unwrap();
        Self { dir }
    }

    fn open(&self) -> SpecRegistry {
        let clock = Clock::new(|| Timestamp::from_micros(7));
        SpecRegistry::open(&self.dir.path().join("specs"), self.dir.path(), clock).unwrap()
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.dir.path().join("specs").join(file), text).unwrap();
    }

    fn mode(&self, path: &str, mode: u32) {
        let path = self.dir.path().join(path);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn remove(&self, file: &str) {
        std::fs::remove_file(self.dir.path().join("specs").join(file)).unwrap();
    }
}

fn spec(name: &str, version: u32, fields: &[(&str, &str)]) -> String {
    let fields: String = fields
        .iter()
        .map(|(name, kind)| format!("  - {{ name: {name}, path: /{name}, type: {kind} }}\n"))
        .collect();
    format!("name: {name}\nversion: {version}\nmatch: {{ msg_type: {name} }}\nfields:\n{fields}")
}

/// Name, version and state of each, and the refused files.
fn stands(book: &SpecRegistry) -> (Vec<(String, u32, &'static str)>, Vec<String>) {
    let view = book.view();
    let specs = view
        .specs
        .iter()
        .map(|spec| (spec.name.to_string(), spec.version, spec.state));
    (
        specs.collect(),
        view.refused.into_iter().map(|refused| refused.file).collect(),
    )
}

/// Root may read everything; as nobody, this thread may not.
fn as_nobody<T>(work: impl FnOnce() -> T) -> T {
    let before = nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
    let done = work();
    nix::unistd::setfsuid(before);
    done
}

/// Looks until what was written is read.
fn looked(book: &SpecRegistry) {
    book.scan_folder();
    book.scan_folder();
}

fn is(name: &str, version: u32, state: &'static str) -> (String, u32, &'static str) {
    (name.to_owned(), version, state)
}

#[test]
fn a_refused_file_changes_nothing_and_what_it_said_last_is_in_force_over_a_restart_too() {
    let fixture = SpecFixture::new();
    fixture.write("a.yaml", &spec("order", 1, &[("amount", "int")]));
    fixture.write("notes.txt", "no spec");
    let book = fixture.open();
    assert_eq!(stands(&book), (vec![is("order", 1, "active")], vec![]));
    fixture.write("a.yaml", "name: order\nversion: 2\nmtch: {}\n");
    looked(&book);
    let found = (vec![is("order", 1, "active")], vec!["a.yaml".to_owned()]);
    assert_eq!(stands(&book), found);
    assert!(
        book.view().refused[0]
            .faults
            .iter()
            .any(|fault| fault.text.contains("mtch"))
    );
    let again = fixture.open();
    assert_eq!(stands(&again), found);
    assert_eq!(again.files().len(), 1);
    fixture.write("a.yaml", &spec("order", 2, &[("amount", "float")]));
    looked(&again);
    assert_eq!(stands(&again), (vec![is("order", 2, "active")], vec![]));
    let figures = again.figures();
    assert_eq!((figures.active, figures.refused, figures.refusals), (1, 0, 1));
}

#[test]
fn a_change_without_a_greater_version_or_of_a_type_is_refused_over_a_restart_too() {
    let fixture = SpecFixture::new();
    fixture.write("a.yaml", &spec("order", 2, &[("amount", "int")]));
    drop(fixture.open());
    for (version, kind, says) in [
        (2, "float", "give it version 3"),
        (1, "int", "version 3"),
        (3, "string", "new name"),
    ] {
        fixture.write("a.yaml", &spec("order", version, &[("amount", kind)]));
        let book = fixture.open();
        let faults = format!("{:?}", book.view().refused);
        assert!(faults.contains(says), "{says}: {faults}");
        assert_eq!(stands(&book).0, [is("order", 2, "active")]);
    }
    fixture.write(
        "a.yaml",
        &format!("# only a word\n{}", spec("order", 2, &[("amount", "int")])),
    );
    assert_eq!(stands(&fixture.open()).1, Vec::<String>::new());
}

#[test]
fn a_name_is_one_files_and_that_file_keeps_it() {
    let fixture = SpecFixture::new();
    fixture.write("m.yaml", &spec("order", 1, &[]));
    let book = fixture.open();
    fixture.write("a.yaml", &spec("order", 9, &[]));
    looked(&book);
    assert_eq!(
        stands(&book),
        (vec![is("order", 1, "active")], vec!["a.yaml".to_owned()])
    );
    fixture.remove("m.yaml");
    looked(&book);
    assert_eq!(stands(&book), (vec![is("order", 9, "active")], vec![]));
    assert_eq!(book.view().specs[0].file, "a.yaml");
}

#[test]
fn of_names_that_differ_in_capitals_only_the_first_stands_over_a_restart_and_its_withdrawal_too() {
    let fixture = SpecFixture::new();
    fixture.write("m.yaml", &spec("order", 1, &[]));
    let book = fixture.open();
    fixture.write("a.yaml", &spec("Order", 1, &[("amount", "int")]));
    looked(&book);
    let found = (vec![is("order", 1, "active")], vec!["a.yaml".to_owned()]);
    assert_eq!(stands(&book), found);
    let fault = book.view().refused[0].faults[0].to_string();
    assert!(
        fault.starts_with("1:1: m.yaml is the spec order, and its table stays: DuckDB cannot distinguish messages_Order from messages_order;"),
        "{fault}"
    );
    assert_eq!(stands(&fixture.open()), found);
    // The table of the one that went is there still.
    fixture.remove("m.yaml");
    looked(&book);
    assert_eq!(
        stands(&book),
        (vec![is("order", 1, "withdrawn")], vec!["a.yaml".to_owned()])
    );
    fixture.write("a.yaml", &spec("Orders", 1, &[("amount", "int")]));
    looked(&book);
    assert_eq!(stands(&book).1, Vec::<String>::new());
    // Both at once.
    let both = SpecFixture::new();
    both.write("1.yaml", &spec("sale", 1, &[]));
    both.write("2.yaml", &spec("SALE", 1, &[]));
    assert_eq!(
        stands(&both.open()),
        (vec![is("SALE", 1, "active")], vec!["1.yaml".to_owned()])
    );
}

#[test]
fn a_spec_whose_file_has_another_name_now_takes_nothing_over_a_restart_too() {
    let fixture = SpecFixture::new();
    fixture.write("a.yaml", &spec("order", 1, &[("amount", "int")]));
    let book = fixture.open();
    // While the file is refused under its new name, nothing changes.
    fixture.write("a.yaml", "name: purchase\nversion: 1\nmtch: {}\n");
    looked(&book);
    assert_eq!(
        stands(&book),
        (vec![is("order", 1, "active")], vec!["a.yaml".to_owned()])
    );
    fixture.write("a.yaml", &spec("purchase", 1, &[("amount", "int")]));
    looked(&book);
    let found = (vec![is("order", 1, "withdrawn"), is("purchase", 1, "active")], vec![]);
    assert_eq!(stands(&book), found);
    assert_eq!(stands(&fixture.open()), found);
    assert_eq!(book.figures().active, 1);
}

#[test]
fn a_file_that_is_refused_holds_no_spec_whose_own_file_is_gone_or_another_spec() {
    for moves in [true, false] {
        let fixture = SpecFixture::new();
        fixture.write("a.yaml", &spec("order", 2, &[("amount", "int")]));
        let book = fixture.open();
        if moves {
            fixture.write("a.yaml", &spec("purchase", 1, &[]));
        } else {
            fixture.remove("a.yaml");
        }
        // Version 1 comes after version 2.
        fixture.write("b.yaml", &spec("order", 1, &[("amount", "int")]));
        looked(&book);
        let (specs, refused) = stands(&book);
        assert_eq!(specs[0], is("order", 2, "withdrawn"), "{moves}");
        assert_eq!(refused, ["b.yaml"], "{moves}");
    }
}

#[test]
fn a_spec_whose_file_is_gone_takes_nothing_and_keeps_its_columns() {
    let fixture = SpecFixture::new();
    fixture.write("a.yml", &spec("order", 1, &[("amount", "int"), ("city", "string")]));
    let book = fixture.open();
    fixture.write("a.yml", &spec("order", 2, &[("city", "string")]));
    looked(&book);
    fixture.remove("a.yml");
    looked(&book);
    assert_eq!(stands(&book), (vec![is("order", 2, "withdrawn")], vec![]));
    let book = fixture.open();
    assert_eq!(stands(&book), (vec![is("order", 2, "withdrawn")], vec![]));
    let columns: Vec<_> = book.view().specs[0]
        .columns
        .iter()
        .map(|column| column.name.clone())
        .collect();
    assert_eq!(columns, ["city", "amount"]);
    assert_eq!(book.files().values().next().unwrap().columns.len(), 2);
    // Whoever brings it back brings it back as it was, or changed.
    fixture.write("b.yaml", &spec("order", 3, &[("amount", "string")]));
    looked(&book);
    assert_eq!(
        stands(&book),
        (vec![is("order", 2, "withdrawn")], vec!["b.yaml".to_owned()])
    );
    fixture.write("b.yaml", &spec("order", 3, &[("amount", "float")]));
    looked(&book);
    assert_eq!(stands(&book), (vec![is("order", 3, "active")], vec![]));
    assert_eq!(book.view().specs[0].columns[0].kind, FieldType::Float);
}

#[test]
fn a_damaged_spec_state_file_stops_the_start_with_the_fix() {
    let fixture = SpecFixture::new();
    std::fs::write(fixture.dir.path().join("specs.json"), "{").unwrap();
    let clock = Clock::new(|| Timestamp::from_micros(7));
    let refused = SpecRegistry::open(&fixture.dir.path().join("specs"), fixture.dir.path(), clock).unwrap_err();
    assert!(refused.to_string().contains("or remove it"), "{refused}");
}

#[test]
fn a_file_is_read_once_it_stays_as_it_is() {
    let fixture = SpecFixture::new();
    let book = fixture.open();
    for fields in [&[("amount", "int")][..], &[("amount", "int"), ("city", "string")]] {
        fixture.write("a.yaml", &spec("order", 1, fields));
        book.scan_folder();
    }
    assert_eq!(stands(&book).0, []);
    book.scan_folder();
    assert_eq!(book.view().specs[0].columns.len(), 2);
}

#[test]
fn a_file_that_could_not_be_read_is_tried_again_though_nothing_of_it_changed() {
    let fixture = SpecFixture::new();
    fixture.write("a.yaml", &spec("order", 1, &[]));
    for folder in ["", "specs"] {
        fixture.mode(folder, 0o777);
    }
    fixture.mode("specs/a.yaml", 0o000);
    let book = as_nobody(|| {
        let book = fixture.open();
        looked(&book);
        book
    });
    assert_eq!(stands(&book), (vec![], vec!["a.yaml".to_owned()]));
    assert_eq!(book.figures().refusals, 1, "said once");
    fixture.mode("specs/a.yaml", 0o644);
    book.scan_folder();
    assert_eq!(stands(&book), (vec![is("order", 1, "active")], vec![]));
}

#[test]
fn a_folder_whose_files_cannot_be_looked_at_withdraws_nothing() {
    let fixture = SpecFixture::new();
    fixture.write("a.yaml", &spec("order", 1, &[]));
    let book = fixture.open();
    fixture.mode("", 0o777);
    // It may be listed; what is in it may not be looked at.
    fixture.mode("specs", 0o644);
    as_nobody(|| looked(&book));
    assert_eq!(stands(&book), (vec![is("order", 1, "active")], vec![]));
    fixture.mode("specs", 0o755);
    looked(&book);
    assert_eq!(stands(&book), (vec![is("order", 1, "active")], vec![]));
}

#[test]
fn a_folder_that_is_not_there_has_no_specs() {
    let fixture = SpecFixture::new();
    let clock = Clock::new(|| Timestamp::from_micros(7));
    let book = SpecRegistry::open(&fixture.dir.path().join("nowhere"), fixture.dir.path(), clock).unwrap();
    assert_eq!(stands(&book), (vec![], vec![]));
}

/// Whether it hangs, when it has begun to, and when it is over.
type Gate = Arc<(AtomicBool, Barrier, Barrier)>;

/// A clock that hangs.
fn hanging() -> (Clock, Gate) {
    let gate: Gate = Arc::new((AtomicBool::new(false), Barrier::new(2), Barrier::new(2)));
    let of_clock = Arc::clone(&gate);
    let clock = Clock::new(move || {
        let (hangs, begun, over) = &*of_clock;
        if hangs.load(Ordering::Acquire) {
            begun.wait();
            over.wait();
        }
        Timestamp::from_micros(7)
    });
    (clock, gate)
}

#[test]
fn a_folder_scan_that_hangs_does_not_block_readers() {
    let fixture = SpecFixture::new();
    fixture.write("a.yaml", &spec("order", 1, &[("amount", "int")]));
    let (clock, gate) = hanging();
    let book = SpecRegistry::open(&fixture.dir.path().join("specs"), fixture.dir.path(), clock).unwrap();
    let (hangs, begun, over) = &*gate;
    hangs.store(true, Ordering::Release);
    fixture.write("a.yaml", &spec("order", 2, &[("amount", "float")]));
    let (tell, told) = mpsc::channel();
    let asked = std::thread::scope(|scope| {
        scope.spawn(|| looked(&book));
        begun.wait();
        let book = &book;
        scope.spawn(move || {
            let counts = (book.figures().active, book.tables().len(), book.files().len());
            let _ = tell.send((stands(book), counts));
        });
        let asked = told.recv_timeout(Duration::from_secs(20));
        over.wait();
        asked
    });
    assert_eq!(asked, Ok(((vec![is("order", 1, "active")], vec![]), (1, 1, 1))));
    assert_eq!(stands(&book), (vec![is("order", 2, "active")], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_scan_that_hangs_does_not_delay_shutdown() {
    let fixture = SpecFixture::new();
    let (clock, gate) = hanging();
    let book = SpecRegistry::open(&fixture.dir.path().join("specs"), fixture.dir.path(), clock).unwrap();
    let (hangs, begun, over) = &*gate;
    fixture.write("a.yaml", &spec("order", 1, &[("amount", "int")]));
    hangs.store(true, Ordering::Release);
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::new(book).run(stop.clone()));
    tokio::task::block_in_place(|| begun.wait());
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(20), running).await;
    hangs.store(false, Ordering::Release);
    tokio::task::block_in_place(|| over.wait());
    assert!(ended.is_ok());
}
