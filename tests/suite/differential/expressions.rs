//! Random expressions: templates by type (`templates.txt`), whose places are filled with others.
//!
//! | place | is filled with |
//! |---|---|
//! | `{i}` `{f}` `{n}` `{t}` `{b}` | an expression: whole number, double, decimal, text, boolean |
//! | `{z}` `{s}` `{d}` `{v}` | a time with a zone, one without, a date, an interval |
//! | `{I}` `{F}` `{N}` `{T}` `{Z}` `{D}` `{V}` | a literal of these |
//! | `{k}` | a column of doubles: what an aggregate that subtracts squares gives of equal numbers is the noise of their last digits |
//! | `{=}` | what the place before it was filled with |
//! | `{P}` `{S}` `{R}` | a pattern of `LIKE`, of `SIMILAR TO`, a regular expression |

use std::collections::HashMap;
use std::sync::LazyLock;

use harness::Random;

use super::data::pick;

/// A type of values, by its letter in places.
pub(super) type Kind = char;

/// Expressions over columns.
#[derive(Debug)]
pub(super) struct Scope {
    /// Each with its type.
    pub(super) columns: Vec<(String, Kind)>,
}

/// Those of `templates.txt`, by their letters.
static TEMPLATES: LazyLock<HashMap<char, Vec<&'static str>>> = LazyLock::new(|| {
    let mut all: HashMap<char, Vec<&str>> = HashMap::new();
    let lines = include_str!("templates.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    for (letter, template) in lines.filter_map(|line| line.split_once(' ')) {
        all.entry(letter.chars().next().unwrap_or_default())
            .or_default()
            .push(template);
    }
    all
});

pub(super) fn templates(letter: char) -> &'static [&'static str] {
    TEMPLATES.get(&letter).map_or(&[], Vec::as_slice)
}

impl Scope {
    /// An expression of a type, with so many levels of others within it at the most.
    pub(super) fn expression(&self, random: &mut Random, kind: Kind, depth: u32) -> String {
        let columns: Vec<_> = self.columns.iter().filter(|column| column.1 == kind).collect();
        let is_leaf = depth == 0 || random.below(4) == 0;
        if is_leaf && kind != 'b' {
            if let Some(column) =
                (!columns.is_empty() && random.below(5) > 0).then(|| random.below(columns.len() as u64))
            {
                return columns[usize::try_from(column).unwrap_or_default()].0.clone();
            }
            let literals = if kind == 's' { 'C' } else { kind.to_ascii_uppercase() };
            return pick(random, templates(literals)).to_owned();
        }
        let all = templates(kind);
        let template = match pick_refused(random) {
            Some(template) if template.starts_with(kind) => &template[2..],
            _ if kind == 'b' && depth == 0 => {
                // Without booleans in them.
                let plain: Vec<_> = all
                    .iter()
                    .copied()
                    .filter(|template| !template.contains("{b}"))
                    .collect();
                pick(random, &plain)
            }
            _ => pick(random, all),
        };
        self.filled(random, template, depth.saturating_sub(1))
    }

    /// A column of doubles, or one such number.
    fn column(&self, random: &mut Random) -> String {
        // Values of metrics are as large as 1e300: their squares are not.
        let is_it = |column: &&(String, Kind)| column.1 == 'f' && !column.0.ends_with("value");
        let columns: Vec<_> = self.columns.iter().filter(is_it).collect();
        if columns.is_empty() {
            return "(0.5::float8)".to_owned();
        }
        columns[usize::try_from(random.below(columns.len() as u64)).unwrap_or_default()]
            .0
            .clone()
    }

    /// A template with its places filled.
    pub(super) fn filled(&self, random: &mut Random, template: &str, depth: u32) -> String {
        let (mut text, mut last) = (String::new(), String::new());
        let mut rest = template;
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            text.push_str(before);
            let place = from.as_bytes().get(1).copied().map(char::from).unwrap_or_default();
            if from.as_bytes().get(2) != Some(&b'}') || !(place.is_ascii_alphabetic() || place == '=') {
                text.push('{');
                rest = &from[1..];
                continue;
            }
            rest = &from[3..];
            match place {
                'k' => text.push_str(&self.column(random)),
                'a'..='z' => {
                    let inner = self.expression(random, place, depth);
                    let is_plain = inner.chars().all(|c| c.is_alphanumeric() || "._()'\" ".contains(c)) || place == 'b';
                    // Brackets are left out now and then, so that precedence counts.
                    last = if is_plain && !inner.contains(" IS ") || random.below(6) == 0 {
                        inner
                    } else {
                        format!("({inner})")
                    };
                    text.push_str(&last);
                }
                '=' => text.push_str(&last),
                _ => text.push_str(pick(random, templates(place))),
            }
        }
        text.push_str(rest);
        text
    }
}

/// Now and then a template that is refused.
fn pick_refused(random: &mut Random) -> Option<&'static str> {
    let refused = templates('X');
    let place = random.below(refused.len() as u64 * 12);
    refused.get(usize::try_from(place).ok()?).copied()
}
