//! Scenario files, good and bad.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::gear_manifest::{self, GearManifest};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Numbers {
    #[serde(default)]
    rate: f64,
    #[serde(default, rename = "size")]
    _size: u32,
}

impl gear_manifest::GearConfig for Numbers {
    fn validate(&self) -> Result<(), String> {
        if self.rate < 0.0 {
            return Err("rate must not be negative".to_owned());
        }
        Ok(())
    }
}

const fn manifest(
    kind: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
) -> GearManifest {
    GearManifest {
        kind,
        summary: "",
        inputs,
        outputs,
        doc: "",
        example: "",
        schema: gear_manifest::schema::<Numbers>,
        check: gear_manifest::check::<Numbers>,
        passes_on: gear_manifest::never,
    }
}

const TYPES: &GearManifests = &[
    &manifest("generator", &[], &["out"]),
    &manifest("pass", &["in"], &["out"]),
    &manifest("log_sink", &["in"], &[]),
    &manifest("door", &["reply"], &["out"]),
    &GearManifest {
        passes_on: gear_manifest::always,
        ..manifest("always", &["in"], &["out"])
    },
];

const GOOD: &str = "
meta: { name: demo, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 10 } }
  - { name: sink, type: log_sink, deploy: rack-a }
wires:
  - { from: numbers.out, to: sink.in }
";

fn faults(yaml: &str) -> Vec<String> {
    let BadScenario(faults) = review(yaml, TYPES).unwrap_err();
    faults.iter().map(SourceDiagnostic::to_string).collect()
}

#[test]
fn a_good_scenario_is_read_without_warnings() {
    let read = review(GOOD, TYPES).unwrap();
    assert_eq!((read.scenario.gears.len(), read.warnings), (2, Vec::new()));
    assert_eq!(read.scenario.gears[0].config["rate"], 10);
}

#[test]
fn every_mistake_is_named_with_its_line_and_column() {
    for (from, to, says) in [
        (
            "type: generator",
            "type: genrator",
            "5:28: gear numbers has the unknown type \"genrator\"",
        ),
        (
            "numbers.out",
            "numbers.oops",
            "8:13: wire numbers.oops -> sink.in: numbers (generator) has no output oops; it has out",
        ),
        (
            "sink.in",
            "sunk.in",
            "8:30: wire numbers.out -> sunk.in: there is no gear sunk",
        ),
        (
            "rate: 10",
            "rat: 10",
            "5:65: config of gear numbers (generator): unknown field `rat`",
        ),
        (
            "rate: 10",
            "rate: fast",
            "5:71: config of gear numbers (generator): rate: invalid type: string \"fast\"",
        ),
        (
            "rate: 10",
            "rate: -1",
            "5:71: config of gear numbers (generator): rate must not be negative",
        ),
        ("rate: 10", "rate: .nan", "5:71: "),
        (
            "log_sink, deploy: rack-a",
            "log_sink, deploy: rack-b",
            "6:43: gear sink is deployed to rack-b",
        ),
        (
            "log_sink, deploy: rack-a",
            "log_sink",
            "6:5: gear sink: missing field `deploy`",
        ),
        (
            "wires:",
            "wirez:",
            "7:1: unknown key wirez; a scenario has meta, racks, gears, wires",
        ),
        ("name: sink", "name: numbers", "6:13: two gears are called numbers"),
        ("name: sink", "nam: sink", "6:7: gear: unknown field `nam`"),
        ("numbers.out", "a.b.c.d", "8:13: wire: from: \"a.b.c.d\" is not a name"),
        (
            "{ name: rack-a }",
            "{ group: g, name: rack-a }",
            "3:19: an entry of racks needs either name or group",
        ),
        (
            "{ name: rack-a }",
            "{ name: rack-a }, { name: rack-a }",
            "3:36: racks lists rack-a twice",
        ),
        ("{ name: rack-a }", "rack-a", "3:10: rack is not a mapping"),
        (
            "sink.in }",
            "sink.in, lane: cold }",
            "8:45: wire: lane: unknown variant `cold`",
        ),
        ("version: '1'", "version: 'a b'", "2:30: meta: \"a b\" is not a version"),
        (
            "version: '1'",
            "version: latest",
            "2:30: meta: version: latest is the word for",
        ),
        (", version: '1'", "", "2:7: meta: missing field `version`"),
        ("sink.in }", "sink.in", "8:5: unclosed bracket"),
        ("racks: [", "racks: {", "3:"),
    ] {
        let faults = faults(&GOOD.replace(from, to));
        assert!(faults.iter().any(|fault| fault.starts_with(says)), "{to}: {faults:?}");
    }
    assert_eq!(
        faults(""),
        ["1:1: a scenario is a mapping with the keys meta, racks, gears and wires"]
    );
}

#[test]
fn bounds_of_a_wire_that_cannot_be_are_named_with_line_and_column() {
    for (from, to, says) in [
        (
            "sink.in }",
            "sink.in, max_age: 5s }",
            "8:48: wire numbers.out -> sink.in: max_age needs lane guaranteed: nothing waits on lane hot",
        ),
        (
            "sink.in }",
            "sink.in, lane: guaranteed, max_bytes: 100 }",
            "8:68: wire numbers.out -> sink.in: max_bytes must be at least 65536",
        ),
        (
            "sink.in }",
            "sink.in, lane: guaranteed, max_age: 10ms }",
            "8:66: wire numbers.out -> sink.in: max_age must be at least 1s",
        ),
        (
            "sink.in }",
            "sink.in, lane: guaranteed, overflow: drop }",
            "8:67: wire: overflow: unknown variant `drop`, expected `block` or `drop_oldest_to_dlq`",
        ),
    ] {
        let faults = faults(&GOOD.replace(from, to));
        assert!(faults.iter().any(|fault| fault.starts_with(says)), "{to}: {faults:?}");
    }
}

#[test]
fn all_faults_come_at_once_in_the_order_of_the_file_and_none_twice() {
    let yaml = "
meta: { name: demo }
racks: [ { name: rack-a, color: red } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rat: 10, size: big, rate: -1 } }
  - { name: sink, type: log_sinc, deploy: rack-c }
  - { name: half, type: log_sink }
wires:
  - { from: numbers.oops, to: half.in }
  - { from: numbers.out, to: none.in, speed: 3 }
";
    let faults = faults(yaml);
    let places: Vec<_> = faults.iter().map(|fault| fault.split(": ").next().unwrap()).collect();
    // The rack's own fault does not make its name unknown, nor the gear without deploy its.
    assert_eq!(
        places,
        [
            "2:7", "3:26", "5:65", "5:80", "5:91", "6:25", "6:43", "7:5", "9:13", "10:39"
        ],
        "{faults:#?}"
    );
}

#[test]
fn texts_are_as_they_are_written_and_configs_keep_their_types() {
    let yaml = GOOD
        .replace("'1'", "0x10")
        .replace("rack-a", "007")
        .replace("name: demo", "name: true");
    let scenario = parse(&yaml, TYPES).unwrap();
    assert_eq!(
        (scenario.meta.version.as_str(), scenario.meta.name.as_str()),
        ("0x10", "true")
    );
    assert_eq!(scenario.gears[0].deploy.as_str(), "007");
    assert_eq!(scenario.gears[0].config["rate"], 10);
    let dotted = parse(&GOOD.replace("'1'", "1.10"), TYPES).unwrap();
    assert_eq!(dotted.meta.version.as_str(), "1.10");
}

#[test]
fn a_cycle_of_wires_is_a_warning_that_names_its_gears() {
    let yaml = "
meta: { name: demo, version: '1' }
racks: [ { name: a } ]
gears:
  - { name: one, type: pass, deploy: a }
  - { name: two, type: pass, deploy: a }
  - { name: in, type: generator, deploy: a }
  - { name: self, type: pass, deploy: a }
wires:
  - { from: in.out, to: one.in }
  - { from: one.out, to: two.in }
  - { from: two.out, to: one.in }
  - { from: self.out, to: self.in }
  - { from: two.out, to: self.in }
";
    let warnings: Vec<_> = review(yaml, TYPES)
        .unwrap()
        .warnings
        .iter()
        .map(SourceDiagnostic::to_string)
        .collect();
    assert_eq!(
        warnings,
        [
            "12:26: the wires form a cycle: one -> two -> one; a message loops until it has left max_hops gears",
            "13:27: the wires form a cycle: self -> self; a message loops until it has left max_hops gears",
        ]
    );
}

/// A source, a circle of gears of these types, and a way out behind the first.
fn circle(kinds: &[&str]) -> String {
    let mut gears =
        String::from("  - { name: in, type: generator, deploy: a }\n  - { name: end, type: log_sink, deploy: a }\n");
    let mut wires = String::from("  - { from: in.out, to: g0.in }\n  - { from: g0.out, to: end.in }\n");
    for (number, kind) in kinds.iter().enumerate() {
        gears += &format!("  - {{ name: g{number}, type: {kind}, deploy: a }}\n");
        wires += &format!(
            "  - {{ from: g{number}.out, to: g{}.in }}\n",
            (number + 1) % kinds.len()
        );
    }
    format!("meta: {{ name: demo, version: '1' }}\nracks: [ {{ name: a }} ]\ngears:\n{gears}wires:\n{wires}")
}

#[test]
fn a_cycle_without_an_exit_is_refused_and_with_a_selective_gear_a_warning() {
    assert_eq!(
        faults(&circle(&["always", "always", "always"])),
        [
            "14:25: no message leaves the cycle of wires g0 -> g1 -> g2 -> g0: each of its gears passes on every message, so each \
             loops until max_hops ends it; add a gear that selects, such as filter or route, or remove this wire"
        ]
    );
    assert_eq!(faults(&circle(&["always"])).len(), 1, "a gear that sends to itself");
    let chooses = review(&circle(&["always", "pass", "always"]), TYPES).unwrap();
    assert_eq!(chooses.warnings.len(), 1);
    // The gear that may choose is only on the other way round.
    let two = circle(&["always", "pass", "always"]) + "  - { from: g2.out, to: g2.in }\n";
    let faults = faults(&two);
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].starts_with("15:25: no message leaves the cycle of wires g2 -> g2: "),
        "{faults:?}"
    );
}

#[test]
fn a_cycle_longer_than_max_hops_is_refused_where_the_limit_is_known() {
    let long = circle(&["pass"; 20]);
    let refused = |yaml: &str, max_hops| review_within(yaml, TYPES, max_hops).map_err(|BadScenario(faults)| faults);
    let faults = refused(&long, 19).unwrap_err();
    assert_eq!(faults.len(), 1);
    let text = faults[0].to_string();
    assert!(
        text.starts_with("48:26: no message completes the cycle of wires g0 -> g1 -> "),
        "{text}"
    );
    assert!(
        text.contains("g11 -> (8 more) -> g0: ") && text.contains("which are 19;"),
        "{text}"
    );
    for reviewed in [refused(&long, 20).unwrap(), review(&long, TYPES).unwrap()] {
        assert_eq!(reviewed.warnings.len(), 1);
    }
    // A shorter way round by the same wire.
    let short = long + "  - { from: g0.out, to: g19.in }\n";
    assert_eq!(refused(&short, 19).unwrap().warnings.len(), 1);
}

#[test]
fn what_was_stored_before_a_rule_came_is_read_still() {
    for yaml in [
        GOOD.replace("version: '1'", "version: latest"),
        circle(&["always", "always"]),
    ] {
        assert!(review(&yaml, TYPES).is_err(), "{yaml}");
        parse(&yaml, TYPES).unwrap();
    }
}

#[test]
fn a_reply_to_a_request_makes_no_cycle() {
    let yaml = "
meta: { name: demo, version: '1' }
racks: [ { name: a } ]
gears:
  - { name: door, type: door, deploy: a }
  - { name: one, type: pass, deploy: a }
wires:
  - { from: door.out, to: one.in }
  - { from: one.out, to: door.reply }
";
    assert_eq!(review(yaml, TYPES).unwrap().warnings, []);
}

#[test]
fn a_group_that_no_named_rack_belongs_to_is_a_warning() {
    let group = |labels: &str| GOOD.replace("racks: [", &format!("racks: [ {{ group: edge, labels: {labels} }},"));
    let warnings = review(&group("{ role: edge, site: 7 }"), TYPES).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert_eq!(
        warnings[0].to_string(),
        "3:33: no Rack that racks names has the labels of group edge (role=edge, site=7)"
    );
    assert_eq!(review(&group("{}"), TYPES).unwrap().warnings, []);
    let has = group("{ role: edge }").replace("name: rack-a }", "name: rack-a, labels: { role: edge } }");
    assert_eq!(review(&has, TYPES).unwrap().warnings, []);
}

#[test]
fn a_deep_or_looping_file_is_refused_and_not_followed() {
    for yaml in [
        format!("gears: {}", "[".repeat(100_000)),
        format!("meta: {}1{}", "{ a: ".repeat(5_000), " }".repeat(5_000)),
        "a: &a [ *a, *a ]".to_owned(),
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]".to_owned(),
    ] {
        assert!(!faults(&yaml).is_empty());
    }
}

#[test]
fn a_file_of_nothing_but_faults_is_refused_soon_and_shortly() {
    let keys: String = (0..20_000).map(|number| format!("key{number}: 1, ")).collect();
    let one = format!("{{ name: numbers, type: generator, deploy: rack-a, config: {{ {keys} }} }}");
    assert_eq!(
        faults(&GOOD.replace(
            "{ name: numbers, type: generator, deploy: rack-a, config: { rate: 10 } }",
            &one
        ))
        .len(),
        1
    );
    let gears: String = (0..5_000)
        .map(|number| format!("  - {{ nam: gear{number}, deploy: nowhere }}\n"))
        .collect();
    let many = faults(&GOOD.replace("wires:", &format!("{gears}wires:")));
    assert_eq!(many.len(), 101);
    assert!(many[100].ends_with(" more faults"), "{}", many[100]);
}

proptest! {
    #[test]
    fn no_file_makes_the_reader_panic(cut in 0..GOOD.len(), noise in "[ -~\\n]{0,12}") {
        let mut yaml = GOOD.to_owned();
        yaml.insert_str(cut, &noise);
        if let Err(BadScenario(faults)) = parse(&yaml, TYPES) {
            prop_assert!(!faults.is_empty());
            prop_assert!(faults.iter().all(|fault| fault.line >= 1 && fault.column >= 1));
        }
    }
}
