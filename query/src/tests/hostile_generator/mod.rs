//! A generator of hostile statements: SQL of a few hundred bytes to 64 KiB that wants all memory, all time or a crash.
//!
//! Shared by the tests of this room and by `bench-load`. What it gives depends on the numbers that it draws alone.

mod plans;
mod texts;

const TABLES: &[&str] = &["logs", "traces", "metrics", "logs", "messages"];
const TEXTS: &[&str] = &[
    "message",
    "attributes",
    "level",
    "message || attributes",
    "ts::text",
    "uuid_text(flux_id)",
];
const COUNTS: &[&str] = &[
    "-1",
    "0",
    "1",
    "7",
    "100",
    "4000",
    "65536",
    "16777216",
    "2147483647",
    "9223372036854775807",
];

/// A statement, of numbers below a bound that are drawn.
pub(crate) fn hostile_statement(below: &mut dyn FnMut(u64) -> u64) -> String {
    let mut draw = Draw(below);
    let text = (draw.pick(FAMILIES))(&mut draw);
    let mut text = match draw.below(30) {
        0 | 1 => format!("EXPLAIN {text}"),
        2 => format!("EXPLAIN ANALYZE {text}"),
        3 if text.starts_with("SELECT") => format!("SELECT count(*) FROM ({text}) AS q"),
        4 if text.starts_with("SELECT") => format!("SELECT DISTINCT * FROM ({text}) AS q ORDER BY 1 DESC"),
        _ => text,
    };
    if draw.below(100) == 0 {
        let middle = text.len() / 2;
        let cut = (middle..text.len()).find(|at| text.is_char_boundary(*at));
        text.truncate(cut.unwrap_or(text.len()));
    }
    text
}

type Family = fn(&mut Draw<'_>) -> String;

const FAMILIES: &[Family] = &[
    texts::grown,
    texts::grown,
    texts::grown,
    texts::doubled,
    texts::nested,
    texts::literals,
    texts::columns,
    plans::joined,
    plans::joined,
    plans::unnested,
    plans::windowed,
    plans::recursive,
    texts::absurd,
    texts::absurd,
    texts::numbers,
    plans::grouped,
    texts::matched,
    texts::matched,
    texts::bytes,
    plans::catalogue,
    plans::aggregated,
    plans::aggregated,
    plans::combined,
    plans::refused,
];

struct Draw<'a>(&'a mut dyn FnMut(u64) -> u64);

impl Draw<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        (self.0)(bound)
    }

    fn size(&mut self, most: u64) -> usize {
        // Small ones are as frequent as large ones.
        let most = 1 + self.below(most);
        usize::try_from(1 + self.below(most)).unwrap_or(1)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = usize::try_from(self.below(of.len() as u64)).unwrap_or(0);
        of[at % of.len()]
    }

    /// Some of a list, one after the other.
    fn some(&mut self, most: u64, between: &str, make: impl Fn(&mut Self) -> String) -> String {
        let count = self.size(most);
        let made: Vec<String> = (0..count).map(|_| make(self)).collect();
        made.join(between)
    }

    fn literal(&mut self, most: u64) -> String {
        let letters = self.pick(&["a", "ab ", "ß", "🦀", "\u{0}", "''", "%", "\\", "x,", "é"]);
        let count = self.size(most / letters.len() as u64 + 1);
        format!("'{}'", letters.repeat(count))
    }

    fn text(&mut self) -> String {
        match self.below(3) {
            0 => self.literal(20_000),
            1 => self.literal(40),
            _ => self.pick(TEXTS).to_owned(),
        }
    }

    fn table(&mut self) -> &'static str {
        self.pick(TABLES)
    }

    /// A text that a function makes of another.
    fn growth(&mut self, of: &str) -> String {
        let (count, small) = (self.pick(COUNTS), self.literal(300));
        match self.below(20) {
            0 => format!("replace({of}, 'a', {small})"),
            1 => format!("replace({of}, '', {small})"),
            2 => format!("regexp_replace({of}, '.', {small}, 'g')"),
            3 => format!(r"regexp_replace({of}, '(.*)', '\1\1\1\1\1\1\1\1', 'g')"),
            4 => format!("({of} || {of})"),
            5 => format!("concat({of}, {small}, {of})"),
            6 => format!("concat_ws({of}, {of}, {small}, {of})"),
            7 => format!("repeat({of}, {count})"),
            8 => format!("lpad({of}, {count}, {small})"),
            9 => format!("rpad({of}, {count})"),
            10 => format!("translate({of}, 'ab', '🦀🦀')"),
            11 => format!("overlay({of} PLACING {small} FROM 1 FOR {count})"),
            12 => format!("encode({of}::bytea, '{}')", self.pick(&["hex", "base64"])),
            13 => format!("array_to_string(string_to_array({of}, NULL), {small})"),
            14 => format!("array_to_string(regexp_match({of}, '((((.*))))'), {small})"),
            15 => format!("upper({of})"),
            16 => format!("reverse(lower({of}))"),
            17 => format!("to_char(now(), '{}' || {of})", "%+%c".repeat(self.size(500))),
            18 => format!("array_to_string(array_concat(ARRAY[{of}], ARRAY[{of}, {small}]), '')"),
            _ => format!("initcap(split_part({of}, 'a', 1) || {small} || {of})"),
        }
    }

    fn grown(&mut self) -> String {
        let mut text = self.text();
        for _ in 0..self.size(6) {
            let grown = self.growth(&text);
            if grown.len() > 60_000 {
                break;
            }
            text = grown;
        }
        text
    }
}
