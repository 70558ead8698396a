//! The table of what became of what senders sent.

use std::fmt::{Display, Formatter};

use serde_json::{Map, Value, json};

/// What is said of a sender that is not there.
const NOT_RUN: &str = "NOT RUN";

/// A row for each sender and signal, and what is wrong.
#[derive(Debug, Default)]
pub(super) struct SenderTable {
    rows: Vec<[String; 5]>,
    compared: usize,
    faults: Vec<String>,
}

impl SenderTable {
    /// A sender that did not run, and why.
    pub(super) fn not_run(&mut self, sender: &str, why: &str) {
        let row = [sender, why, "", "", NOT_RUN];
        self.rows.push(row.map(str::to_owned));
    }

    /// Senders that did not run are faults.
    pub(super) fn require_all(&mut self) {
        for [sender, why, .., verdict] in &self.rows {
            if verdict == NOT_RUN {
                self.faults.push(format!("{sender} did not run: {why}"));
            }
        }
    }

    /// Something that went wrong.
    pub(super) fn fault(&mut self, what: String) {
        self.faults.push(what);
    }

    /// What a sender says that it sent, and what is stored of it.
    pub(super) fn compare(&mut self, sender: &str, signal: &str, sent: &[Value], stored: &[Value]) {
        let (sent, stored) = (sorted(sent), sorted(stored));
        let (has_sent, is_equal) = (!sent.is_empty(), sent == stored);
        if !is_equal {
            let [lost, other] = [(&sent, &stored), (&stored, &sent)]
                .map(|(these, those)| these.iter().find(|row| !those.contains(row)));
            let counts = (sent.len(), stored.len());
            self.faults.push(format!(
                "{sender} {signal}: {counts:?} rows\n  sent only:   {lost:?}\n  stored only: {other:?}"
            ));
        } else if !has_sent {
            self.faults.push(format!("{sender} {signal}: nothing was sent"));
        }
        let counts = [sent.len(), stored.len()].map(|count| count.to_string());
        self.add(sender, signal, counts, (is_equal && has_sent, "equal"));
    }

    /// What a checker says of something that it was shown; nothing if it is well.
    pub(super) fn check(&mut self, checker: &str, what: &str, complaint: &str) {
        if !complaint.is_empty() {
            self.faults.push(format!("{checker} {what}: {complaint}"));
        }
        self.add(checker, what, Default::default(), (complaint.is_empty(), "clean"));
    }

    fn add(&mut self, sender: &str, signal: &str, [sent, stored]: [String; 2], (is_well, word): (bool, &str)) {
        let verdict = if is_well {
            word.to_owned()
        } else {
            format!("NOT {word}")
        };
        self.rows
            .push([sender.to_owned(), signal.to_owned(), sent, stored, verdict]);
        self.compared += 1;
    }

    /// Prints it; fails if anything was wrong, or nothing ran.
    pub(super) fn judge(&self) {
        println!("{self}");
        assert!(self.faults.is_empty(), "{}", self.faults.join("\n"));
        assert!(self.compared > 0, "no sender is installed: make senders");
    }
}

impl Display for SenderTable {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        let head = ["sender (version)", "signal", "sent", "stored", "verdict"].map(str::to_owned);
        for [sender, signal, sent, stored, verdict] in std::iter::once(&head).chain(&self.rows) {
            writeln!(to, "| {sender:58} | {signal:12} | {sent:>6} | {stored:>6} | {verdict}")?;
        }
        Ok(())
    }
}

/// A row in one form: numbers are numbers, whether they were whole.
fn comparable(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(list) => list.iter().map(comparable).collect(),
        Value::Object(object) => object
            .iter()
            // What a sender does not know.
            .filter(|(key, _)| !["entity_id", "flux_id"].contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), comparable(value)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Rows in one form and order.
pub(super) fn sorted(rows: &[Value]) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(|row| comparable(row).to_string()).collect();
    rows.sort();
    rows
}

#[test]
fn a_row_that_is_missing_doubled_or_other_is_a_fault() {
    let rows = |numbers: &[u64]| -> Vec<Value> { numbers.iter().map(|number| json!({ "n": number })).collect() };
    for (sent, stored, is_fault) in [
        (&[1, 2][..], &[2, 1][..], false),
        (&[1, 2], &[1], true),
        (&[1, 2], &[1, 2, 2], true),
        (&[1, 2], &[1, 3], true),
        (&[], &[], true),
    ] {
        let mut table = SenderTable::default();
        table.compare("sender", "logs", &rows(sent), &rows(stored));
        assert_eq!(!table.faults.is_empty(), is_fault, "{table}");
    }
}

#[test]
fn a_sender_that_did_not_run_is_a_fault_where_all_are_required() {
    let mut table = SenderTable::default();
    table.compare("sender", "logs", &[json!(1)], &[json!(1)]);
    table.require_all();
    assert!(table.faults.is_empty(), "{table}");
    table.not_run("other", "it is not installed");
    assert!(table.faults.is_empty(), "{table}");
    table.require_all();
    assert_eq!(table.faults, ["other did not run: it is not installed"]);
}
