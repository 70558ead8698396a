//! What is refused on one side alone, and why that is right.

/// A refusal of PostgreSQL by its class and a part of its message, and why it is answered here.
const JUDGED: &[(&str, &str, &str)] = &[
    (
        "22012",
        "division by zero",
        "a double divided by 0 is infinite here, and a row that another condition leaves out is not looked at",
    ),
    (
        "22003",
        "out of range: overflow",
        "a double that is too large is infinite here",
    ),
    (
        "22003",
        "out of range: underflow",
        "a double that is too small is 0 here",
    ),
    ("22003", "integer out of range", "whole numbers have 64 bits here"),
    (
        "22003",
        "input is out of range",
        "a function of an infinite double is NaN here",
    ),
    ("2201E", "logarithm", "a logarithm of 0 or less is infinite or NaN here"),
    ("2201F", "", "a power of a negative number is NaN here"),
    ("22008", "NaN", "a time of NaN is null here"),
    (
        "42883",
        "does not exist",
        "types are made the same here where PostgreSQL wants them cast",
    ),
    ("42846", "cannot cast", "more types are cast here"),
    (
        "42804",
        "",
        "types are made the same here where PostgreSQL wants them cast",
    ),
    (
        "42725",
        "is not unique",
        "types are made the same here where PostgreSQL wants them cast",
    ),
    (
        "42P10",
        "DISTINCT ON position",
        "rows that are distinct by a constant are one row here",
    ),
    (
        "42601",
        "constant in DISTINCT ON",
        "rows that are distinct by a constant are one row here",
    ),
    (
        "42P10",
        "must appear in",
        "aggregates of distinct values take any order here",
    ),
    ("0A000", "merge-joinable", "FULL JOIN takes any condition here"),
    (
        "22025",
        "escape character",
        "a pattern that ends with a backslash matches nothing here",
    ),
];

/// Why a statement that PostgreSQL refuses may be answered.
pub(super) fn reason(class: &str, message: &str, _: &str) -> Option<&'static str> {
    let is = |judged: &&(&str, &str, &str)| judged.0 == class && message.contains(judged.1);
    JUDGED.iter().find(is).map(|judged| judged.2)
}

/// A message without what is of one statement alone.
pub(super) fn kind(message: &str) -> String {
    let mut kind = String::new();
    let mut quoted = None;
    for letter in message.lines().next().unwrap_or_default().chars() {
        match (quoted, letter) {
            (Some(quote), letter) if letter == quote => quoted = None,
            (Some(_), _) => {}
            (None, '\'' | '"' | '`') => {
                quoted = Some(letter);
                kind.push('…');
            }
            (None, letter) if letter.is_ascii_digit() => {
                if !kind.ends_with('#') {
                    kind.push('#');
                }
            }
            (None, letter) => kind.push(letter),
        }
    }
    kind.chars().take(110).collect()
}
