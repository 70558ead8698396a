//! Two answers to one statement: whether they are the same.

use std::cmp::Ordering;

use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

/// Digits beside which doubles may differ, relative to the greater: sums and functions have their last ones by chance.
const TOLERANCE: f64 = 1e-9;

/// A value of an answer.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Null,
    Text(String),
    Number(f64),
}

/// An answer, or why there is none: the class and the message.
pub(super) type Answer = Result<Vec<Vec<Option<String>>>, (String, String)>;

/// The rows of a simple query.
pub(super) fn rows(messages: &[SimpleQueryMessage]) -> Vec<Vec<Option<String>>> {
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()),
        _ => None,
    };
    messages.iter().filter_map(row).collect()
}

/// Why two answers differ, if they do; `types` are those of the columns at PostgreSQL.
pub(super) fn difference(
    theirs: &[Vec<Option<String>>],
    ours: &[Vec<Option<String>>],
    types: &[Type],
    is_ordered: bool,
) -> Option<String> {
    if theirs.len() != ours.len() {
        return Some(format!("{} rows at PostgreSQL, {} here", theirs.len(), ours.len()));
    }
    let (mut theirs, mut ours) = (cells(theirs, types), cells(ours, types));
    if !is_ordered {
        theirs.sort_by(|a, b| compared(a, b));
        ours.sort_by(|a, b| compared(a, b));
    }
    if theirs.iter().zip(&ours).all(|(a, b)| alike(a, b)) {
        return None;
    }
    // Numbers that are nearly the same may come in another order.
    let mut left = ours.clone();
    let is_same = !is_ordered
        && theirs.iter().all(|row| {
            let found = left.iter().position(|other| alike(row, other));
            found.map(|at| left.swap_remove(at)).is_some()
        });
    if is_same {
        return None;
    }
    let (a, b) = theirs.iter().zip(&ours).find(|(a, b)| !alike(a, b))?;
    Some(format!("PostgreSQL {a:?}, here {b:?}"))
}

fn cells(rows: &[Vec<Option<String>>], types: &[Type]) -> Vec<Vec<Cell>> {
    let cell = |(at, value): (usize, &Option<String>)| match value {
        None => Cell::Null,
        Some(text) => match (is_number(types.get(at)), text.parse::<f64>()) {
            (true, Ok(number)) => Cell::Number(if number == 0.0 { 0.0 } else { number }),
            _ if types.get(at) == Some(&Type::INTERVAL) => Cell::Text(span(text)),
            _ => Cell::Text(text.clone()),
        },
    };
    rows.iter()
        .map(|row| row.iter().enumerate().map(cell).collect())
        .collect()
}

/// An interval as microseconds: those that PostgreSQL takes for equal are the same.
fn span(text: &str) -> String {
    let mut micros = 0_i128;
    let mut words = text.split(' ');
    while let Some(word) = words.next() {
        if let Ok(count) = word.trim_start_matches('+').parse::<i128>() {
            micros += count
                * match words.next().unwrap_or_default().trim_end_matches('s') {
                    "year" => 360 * 86_400_000_000,
                    "mon" => 30 * 86_400_000_000,
                    _ => 86_400_000_000,
                };
            continue;
        }
        let time: Vec<f64> = word
            .trim_start_matches(['+', '-'])
            .split(':')
            .filter_map(|part| part.parse().ok())
            .collect();
        let seconds = time.iter().fold(0.0, |sum, part| sum * 60.0 + part);
        #[allow(clippy::cast_possible_truncation, reason = "an interval of this test")]
        let time = (seconds * 1e6).round() as i128;
        micros += if word.starts_with('-') { -time } else { time };
    }
    micros.to_string()
}

fn is_number(kind: Option<&Type>) -> bool {
    kind.is_some_and(|kind| [Type::FLOAT4, Type::FLOAT8, Type::NUMERIC].contains(kind))
}

fn alike(a: &[Cell], b: &[Cell]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
}

fn is_same(a: &Cell, b: &Cell) -> bool {
    match (a, b) {
        (Cell::Number(a), Cell::Number(b)) => {
            (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1e-6)
        }
        (a, b) => a == b,
    }
}

fn compared(a: &[Cell], b: &[Cell]) -> Ordering {
    let cells = a.iter().zip(b).map(|(a, b)| match (a, b) {
        (Cell::Number(a), Cell::Number(b)) => a.total_cmp(b),
        (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
        (a, b) => rank(a).cmp(&rank(b)),
    });
    cells.fold(Ordering::Equal, Ordering::then)
}

const fn rank(cell: &Cell) -> u8 {
    match cell {
        Cell::Null => 0,
        Cell::Text(_) => 1,
        Cell::Number(_) => 2,
    }
}
