//! The pages of `docs/` hold: their YAML is valid, their commands run or at least exist, their configuration keys exist, and what they
//! show of a Mixer is so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, binary, process};
use model::lifecycle_event::LifecycleEvent;
use serde_json::Value;

use crate::racks::free_port;
use crate::readme::{page, project, shell_of};

const SOON: Duration = Duration::from_secs(60);
/// How commands begin that need a Mixer alone.
const NEEDING_A_MIXER: [&str; 5] = [
    "platform-mixer ",
    "platform audit --since ",
    "platform audit --kind ",
    "platform messages ",
    "platform sql \"SELECT level",
];

/// A fenced block: what stands behind the fence, and its lines.
type Block = (String, String);

/// The pages that people wrote, with the README; the page of all commands is held against the programs by `reference`.
fn pages() -> Result<Vec<(PathBuf, String)>, Failure> {
    let mut pages = vec![project().join("README.md")];
    for folder in ["docs", "docs/operate"] {
        for entry in std::fs::read_dir(project().join(folder))? {
            pages.push(entry?.path());
        }
    }
    pages.retain(|path| path.extension().is_some_and(|end| end == "md") && !path.ends_with("cli.md"));
    pages.sort();
    // The package's wrapper takes the arguments of the program that it runs as the service's user.
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path)?;
        Ok((path, text.replace("platform-mixer-admin ", "platform-mixer ")))
    };
    pages.into_iter().map(read).collect()
}

/// The fenced blocks of a page, in their order.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => open = Some((info.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// What `platform` says of a file with this text.
fn judged(file: &Path, text: &str, [noun, verb]: [&str; 2]) -> Result<process::Finished, Failure> {
    std::fs::write(file, text)?;
    let (folder, name) = (file.parent().ok_or("no folder")?, file.file_name().ok_or("no name")?);
    let name = name.to_str().ok_or("no UTF-8")?;
    process::run(&binary("platform")?, &[noun, verb, name], folder, &[])
}

#[test]
fn the_yaml_of_the_pages_is_valid_and_its_faults_read_as_documented() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    // Cases of a page are of this example.
    let example = project().join("examples/field-gateway/scenario.yaml");
    std::fs::copy(example, folder.path().join("flow.yaml"))?;
    let (mut valid, mut faulty) = (0, 0);
    for (path, text) in pages()? {
        let blocks = blocks(&text);
        for (at, (info, yaml)) in blocks.iter().enumerate() {
            let command = if yaml.contains("\nmatch:\n") {
                ["spec", "validate"]
            } else if yaml.contains("\ncases:\n") {
                ["scenario", "test"]
            } else {
                ["scenario", "validate"]
            };
            match info.as_str() {
                "yaml" => {
                    let done = judged(&folder.path().join("page.yaml"), yaml, command)?;
                    assert_eq!(done.code, Some(0), "{}: {}\n{yaml}", path.display(), done.err);
                    valid += 1;
                }
                "yaml faulty" => {
                    // The next block is what is said of it, each line with the file's name.
                    let (_, said) = blocks.get(at + 1).ok_or("nothing is said of it")?;
                    let name = said.split(':').next().unwrap_or_default();
                    let done = judged(&folder.path().join(name), yaml, command)?;
                    let told = done.err.strip_prefix("platform: ").unwrap_or(&done.err);
                    assert_eq!((done.code, told), (Some(65), said.as_str()), "{}", path.display());
                    faulty += 1;
                }
                _ => {}
            }
        }
    }
    assert!(valid > 15 && faulty > 0, "{valid} {faulty}");
    Ok(())
}

/// A command's words as somebody types them: without a comment, and up to a pipe or a redirection.
fn typed(line: &str) -> Vec<&str> {
    let line = line.split(" # ").next().unwrap_or_default().trim();
    let words = line.split_whitespace().map(|word| word.trim_start_matches("dist/"));
    words.take_while(|word| !["|", ">", "<", "&"].contains(word)).collect()
}

/// The help of the command that these words begin with; none if they name no command.
fn help_of<'h>(helps: &'h BTreeMap<Vec<String>, String>, words: &[&str]) -> Option<&'h str> {
    let lengths = (1..=words.len()).rev();
    let named = lengths.map(|length| {
        words
            .iter()
            .take(length)
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    });
    let mut found = named.filter_map(|name| helps.get_key_value(&name));
    let (name, help) = found.next()?;
    (!crate::reference::is_group(name, help)).then_some(help)
}

#[test]
fn the_commands_of_the_pages_exist_with_the_flags_that_they_are_given() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mut helps = BTreeMap::new();
    for program in ["platform", "platform-mixer"] {
        helps.extend(crate::reference::helps(program, folder.path())?);
    }
    let mut count = 0;
    for (path, text) in pages()? {
        let shown = blocks(&text)
            .into_iter()
            .filter(|(info, _)| ["sh", "console"].contains(&info.as_str()));
        for line in shown.flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>()) {
            let words = typed(&line);
            let program = words.first().copied().unwrap_or_default();
            if !["platform", "platform-mixer"].contains(&program) {
                continue;
            }
            let place = path.display();
            let help = help_of(&helps, &words).ok_or_else(|| format!("{place}: no such command: {line}"))?;
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap_or_default();
                assert!(help.contains(flag), "{place}: it has no {flag}: {line}");
            }
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
    Ok(())
}

/// The lines of a page's blocks of commands.
fn commands(page: &str) -> Vec<String> {
    let shown = blocks(page).into_iter().filter(|(info, _)| info == "sh");
    shown
        .flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Only the address of the Mixer differs from what the pages say. What they ask for by an id is not there.
#[test]
fn requests_and_commands_of_the_pages_that_need_a_mixer_alone_work_as_written() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut shell = shell_of(&mixer)?;
    let address = mixer.api.base.trim_start_matches("http://");
    let mut count = 0;
    for (path, text) in pages()? {
        for line in commands(&text) {
            if NEEDING_A_MIXER.iter().any(|begin| line.starts_with(*begin)) {
                let (code, printed) = shell.run(&line, SOON)?;
                assert_eq!(code, 0, "{}: {line}: {printed}{}", path.display(), shell.errors());
                count += 1;
            }
            if !line.starts_with("curl ") || !line.contains(":8090/") {
                continue;
            }
            let line = line.split(" # ").next().unwrap_or_default().trim();
            let asked = line
                .replace("localhost:8090", address)
                .replace("127.0.0.1:8090", address);
            let (code, printed) = shell.run(&format!("{asked} -D headers"), SOON)?;
            assert_eq!(code, 0, "{}: {line}: {}", path.display(), shell.errors());
            let headers = std::fs::read_to_string(mixer.path().join("headers"))?;
            let status = headers.split_whitespace().nth(1).unwrap_or_default();
            let is_of_one = line.contains("/flux/") || line.contains("/exemplars?");
            let wanted = if is_of_one { "404" } else { "200" };
            assert_eq!(status, wanted, "{}: {line}: {printed}", path.display());
            count += 1;
        }
    }
    assert!(count >= 17, "{count}");
    Ok(())
}

/// Runs lines one after another, each of which must succeed.
fn run_all<'l>(mixer: &TestMixer, lines: impl IntoIterator<Item = &'l str>) -> Result<usize, Failure> {
    let mut shell = shell_of(mixer)?;
    let mut count = 0;
    for line in lines {
        let (code, printed) = shell.run(line, SOON)?;
        assert_eq!(code, 0, "{line}: {printed}{}", shell.errors());
        count += 1;
    }
    Ok(count)
}

/// With the Racks that the page's own scenario names, and another scenario to go back to.
#[test]
fn the_commands_on_scenarios_work_as_written() -> Result<(), Failure> {
    let page = page("scenarios.md")?;
    let shown = blocks(&page);
    let (_, yaml) = shown.iter().find(|(info, _)| info == "yaml").ok_or("no scenario")?;
    let mixer = TestMixer::start("")?;
    // Only the port differs from what the page says: another test or program may have it.
    let port = free_port()?;
    assert!(yaml.contains(":9301\""), "{yaml}");
    std::fs::write(mixer.path().join("press.yaml"), yaml.replace("9301", &port))?;
    let before = "meta: { name: before, version: '1' }\ngears: []\n";
    std::fs::write(mixer.path().join("before.yaml"), before)?;
    let mut hub = TestRack::new("hub", &mixer.bus_url, "")?;
    hub.start()?;
    let mut press = TestRack::new("press-1", &mixer.bus_url, "")?;
    press.start()?;
    let commands = commands(&page);
    let lines = commands.iter().map(String::as_str);
    let count = run_all(
        &mixer,
        std::iter::once("platform scenario activate before.yaml").chain(lines),
    )?;
    assert!(count > 14, "{count}");
    Ok(())
}

/// With two Racks that wait for their admission.
#[test]
fn the_commands_on_racks_work_as_written() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("enrollment.auto_adopt", "false")], &[])?;
    let mut first = TestRack::new("press-1", &mixer.bus_url, "")?;
    let mut second = TestRack::new("press-2", &mixer.bus_url, "")?;
    let mut keys = Vec::new();
    for rack in [&mut first, &mut second] {
        rack.spawn()?;
        let waits = rack.process()?.line("pending ", SOON)?;
        let (_, key) = waits.split_once("key=").ok_or("it prints no key")?;
        keys.push((format!(" approve {} ", rack.name), key.to_owned()));
    }
    let mut commands = commands(&page("racks.md")?);
    commands.retain(|line| line.starts_with("platform racks ") || line.starts_with("platform audit --rack "));
    assert!(commands.len() >= 10, "{commands:?}");
    for (approval, key) in keys {
        for line in commands.iter_mut().filter(|line| line.contains(&approval)) {
            *line = line.replace("$KEY", &key);
        }
    }
    let is_approval = |line: &String| line.contains(" approve press-1 ");
    let approval = commands.iter().position(is_approval).ok_or("nobody is approved")?;
    let (before, after) = commands.split_at(approval + 1);
    run_all(&mixer, before.iter().map(String::as_str))?;
    first.process()?.line("ready ", SOON)?;
    run_all(&mixer, after.iter().map(String::as_str))?;
    Ok(())
}

/// The spans of code of a page.
fn spans(page: &str) -> impl Iterator<Item = &str> {
    let lines = page.lines().filter(|line| !line.starts_with("```"));
    lines.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The keys of both configuration files, with their sections.
fn keys() -> Result<BTreeSet<String>, Failure> {
    let reference = page("configuration.md")?;
    let mut section = "";
    let mut keys = BTreeSet::new();
    for line in reference.lines() {
        if let Some(name) = line.strip_prefix("### `[") {
            section = name.trim_end_matches("]`");
        } else if let Some(row) = line.strip_prefix("| `") {
            keys.insert(format!("{section}.{}", row.split('`').next().unwrap_or_default()));
        }
    }
    Ok(keys)
}

#[test]
fn the_configuration_keys_of_the_pages_exist() -> Result<(), Failure> {
    let keys = keys()?;
    let sections: BTreeSet<_> = keys.iter().filter_map(|key| key.split('.').next()).collect();
    assert!(keys.len() > 80 && sections.contains("snake"), "{keys:?}");
    for name in ["scenarios.md", "racks.md"] {
        let page = page(name)?;
        let mut count = 0;
        for span in spans(&page) {
            let key = span.split(" = ").next().unwrap_or_default();
            let is_key = key.split_once('.').is_some_and(|(section, rest)| {
                sections.contains(section) && rest.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.')
            });
            // Files and ends of wires have dots, too.
            if !is_key || key.ends_with(".flux") || key.ends_with(".key") || key == "rack.gear.port" {
                continue;
            }
            assert!(keys.contains(key), "docs/{name}: there is no key {key}");
            count += 1;
        }
        assert!(count > 3, "docs/{name}: {count}");
    }
    Ok(())
}

#[test]
fn the_events_metrics_and_files_of_the_racks_page_are_those_of_a_mixer() -> Result<(), Failure> {
    let page = page("racks.md")?;
    let mixer = TestMixer::start("")?;
    let scenario = "meta: { name: demo, version: '1' }\ngears: []\n";
    let yaml = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &yaml, scenario.as_bytes())?;
    assert_eq!(stored.status, 200, "{}", stored.text);

    let (_, body) = blocks(&page)
        .into_iter()
        .find(|(info, _)| info == "json")
        .ok_or("no event's body")?;
    let shown: Value = serde_json::from_str(&body)?;
    let shown: BTreeSet<_> = shown.as_object().ok_or("no object")?.keys().collect();
    let entries = mixer.api.rows("/api/v1/audit")?;
    let entry = entries.first().ok_or("no entry")?;
    assert_eq!(shown, entry.keys().collect());
    for kind in LifecycleEvent::NAMES {
        assert!(
            page.contains(&format!("`{kind}`")),
            "docs/racks.md does not have {kind}"
        );
    }

    let metrics = mixer.api.get("/metrics")?.text;
    let named: Vec<_> = spans(&page).filter(|span| span.starts_with("platform_")).collect();
    assert!(named.len() > 8, "{named:?}");
    for name in named {
        let name = name.split('{').next().unwrap_or_default();
        let is_there = |line: &str| line.strip_prefix("# TYPE ").is_some_and(|rest| family(rest) == name);
        assert!(metrics.lines().any(is_there), "/metrics has no {name}");
    }
    for file in ["cluster.key", "registry.redb"] {
        assert!(mixer.path().join("data").join(file).is_file(), "{file}");
        assert!(
            page.contains(&format!("`{file}`")),
            "docs/racks.md does not have {file}"
        );
    }
    Ok(())
}

/// The name of a family of metrics, as a line of types begins with it.
fn family(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

#[test]
fn the_page_of_senders_names_the_versions_that_are_run() -> Result<(), Failure> {
    let page = page("senders.md")?;
    for (list, packages) in crate::senders::SENDERS {
        for package in packages {
            let named = crate::senders::pinned(list, package)?;
            assert!(page.contains(&named), "{list} has {named}");
        }
    }
    Ok(())
}
