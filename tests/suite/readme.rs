//! The README and the pages of its first steps hold: their commands are run as they are written, in one shell in a fresh folder.
//!
//! Only the ports differ from a user's machine, and only through the environment. `dist/` holds the binaries under test;
//! what `make` does there is the suite's own condition.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Failure, Shell, TestMixer, binary, eventually, process, tool};

const SOON: Duration = Duration::from_secs(90);

pub(crate) fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn readme() -> Result<String, Failure> {
    Ok(std::fs::read_to_string(project().join("README.md"))?)
}

/// A page of `docs/`.
pub(crate) fn page(name: &str) -> Result<String, Failure> {
    Ok(std::fs::read_to_string(project().join("docs").join(name))?)
}

/// The command blocks under a heading of a page, line by line.
pub(crate) fn blocks(page: &str, heading: &str) -> Vec<Vec<String>> {
    let chapter = page
        .split("\n## ")
        .find(|chapter| chapter.starts_with(heading))
        .unwrap_or_else(|| panic!("the page has no chapter {heading}"));
    let fenced = chapter.split("```").skip(1).step_by(2);
    let of_commands = fenced.filter_map(|block| block.strip_prefix("sh\n").or_else(|| block.strip_prefix("console\n")));
    of_commands
        .map(|block| block.lines().map(str::to_owned).collect())
        .collect()
}

/// A folder as a clone looks to a user after `make build tools`.
pub(crate) fn clone_folder() -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::tempdir()?;
    let link = |to: PathBuf, at: &str| std::os::unix::fs::symlink(to, folder.path().join(at));
    std::fs::create_dir_all(folder.path().join("dist"))?;
    std::fs::create_dir_all(folder.path().join(".tools/bin"))?;
    for name in ["platform", "platform-mixer"] {
        // No link: a program looks for the bus server above the folder that it really lies in.
        let (built, here) = (binary(name)?, folder.path().join("dist").join(name));
        std::fs::hard_link(&built, &here).or_else(|_| std::fs::copy(&built, &here).map(drop))?;
    }
    for name in ["nats-server", "duckdb"] {
        link(tool(name)?, &format!(".tools/bin/{name}"))?;
    }
    let device = project().join(".tools/pymodbus");
    if device.is_dir() {
        link(device.canonicalize()?, ".tools/pymodbus")?;
    }
    for name in ["examples", "protocols", "scripts"] {
        link(project().join(name).canonicalize()?, name)?;
    }
    Ok(folder)
}

fn shell(folder: &Path) -> Result<Shell, Failure> {
    let api = harness::free_port()?;
    let bus = harness::free_port()?;
    let envs = [
        ("PLATFORM_API_PORT", api.to_string()),
        ("PLATFORM_SNAKE_PORT", bus.to_string()),
        ("PLATFORM_SNAKE_URL", format!("nats://127.0.0.1:{bus}")),
        ("PLATFORM_API_URL", format!("http://127.0.0.1:{api}")),
    ];
    Shell::start(folder, &envs, &folder.join("errors"))
}

/// A shell in a Mixer's folder, with the programs on its path, that asks this Mixer.
pub(crate) fn shell_of(mixer: &TestMixer) -> Result<Shell, Failure> {
    let program = binary("platform")?.canonicalize()?;
    let programs = program.parent().ok_or("the program lies nowhere")?.display();
    let path = format!("{programs}:{}", std::env::var("PATH")?);
    let envs = [("PATH", path), ("PLATFORM_API_URL", mixer.api.base.clone())];
    Shell::start(mixer.path(), &envs, &mixer.path().join("errors"))
}

#[test]
fn the_first_steps_work_as_written_and_show_rows_in_under_five_commands() -> Result<(), Failure> {
    let readme = readme()?;
    let sending = blocks(&page("http-ingest.md")?, "Send rows").concat();
    let blocks = blocks(&readme, "First steps");
    let [first, outside, scenario, application] = blocks.as_slice() else {
        panic!("four blocks: first steps, DuckDB, scenario, application; not {blocks:#?}");
    };
    let commands = [first, outside, scenario, application].map(Vec::len);
    let most: [usize; 4] = [4, 1, 4, 4];
    assert!(
        commands.iter().zip(most).all(|(count, most)| *count <= most),
        "{commands:?} commands, where {most:?} are enough: {blocks:#?}"
    );
    assert_eq!(
        first[0], "make build tools",
        "what the suite itself stands on, so not run here"
    );

    let folder = clone_folder()?;
    let mut shell = shell(folder.path())?;
    let mut run = |line: &str| -> Result<String, Failure> {
        let (code, printed) = shell.run(line, SOON)?;
        if code == 0 {
            Ok(printed)
        } else {
            Err(format!("{line}: exit {code}\n{printed}\n{}", shell.errors()).into())
        }
    };
    let mut shown = String::new();
    for line in &first[1..] {
        shown = run(line)?;
    }
    assert!(shown.contains(" node-01 enrolled "), "{shown}");

    for line in outside {
        let rows = eventually("the rows in DuckDB", Duration::from_secs(30), || {
            run(line).ok().filter(|rows| rows.contains("enrolled"))
        })?;
        assert!(rows.contains("node-01"), "{rows}");
    }

    let mut all = String::new();
    for line in scenario {
        shown = run(line)?;
        all.push_str(&shown);
    }
    assert!(all.contains("host:1 is valid"), "{all}");
    assert!(
        shown.contains("system.memory.usage") && shown.contains("node-01"),
        "{shown}"
    );

    for line in application {
        shown = run(line)?;
    }
    assert!(
        shown.contains("5b8efff798038103d269b633813fc60c") && shown.contains("I'm a server span"),
        "{shown}"
    );

    for line in &sending {
        shown = run(line)?;
    }
    assert!(
        shown.contains(r#""stored":1,"#) && shown.contains(r#""duplicate":false"#),
        "{shown}"
    );
    let again = run(sending.last().ok_or("nothing is sent")?)?;
    assert!(
        again.contains(r#""stored":1,"#) && again.contains(r#""duplicate":true"#),
        "{again}"
    );
    Ok(())
}

#[test]
fn the_example_scenarios_are_valid() -> Result<(), Failure> {
    let folder = clone_folder()?;
    let mut count = 0;
    let examples = folder.path().join("examples");
    let mut folders = vec![examples.clone(), examples.join("gears")];
    folders.extend(crate::examples::NAMES.map(|name| examples.join(name)));
    let entries = folders
        .into_iter()
        .map(std::fs::read_dir)
        .collect::<Result<Vec<_>, _>>()?;
    for entry in entries.into_iter().flatten() {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let file = path.display().to_string();
        let done = process::run(
            &binary("platform")?,
            &["scenario", "validate", &file],
            folder.path(),
            &[],
        )?;
        assert_eq!(done.code, Some(0), "{file}: {}", done.err);
        count += 1;
    }
    assert!(count >= 23, "{count} examples");
    Ok(())
}

/// The commands that the table of `docs/commands.md` names, each as its words, alternatives apart.
fn commands_of_table(page: &str) -> BTreeSet<Vec<String>> {
    let rows = page.lines().filter(|line| line.starts_with("| `platform"));
    let mut commands = BTreeSet::new();
    for row in rows {
        let cell = row.trim_start_matches("| ").split(" | ").next().unwrap_or_default();
        for span in cell.replace("\\|", "|").split('`').skip(1).step_by(2) {
            let mut all = vec![Vec::new()];
            for word in span.split_whitespace() {
                if word.chars().all(char::is_uppercase) {
                    continue;
                }
                all = all
                    .iter()
                    .flat_map(|command| {
                        word.split('|').map(|choice| {
                            let mut command: Vec<String> = Vec::clone(command);
                            command.push(choice.to_owned());
                            command
                        })
                    })
                    .collect();
            }
            commands.extend(all);
        }
    }
    commands
}

#[test]
fn every_command_of_the_table_exists_and_every_command_that_exists_is_in_the_table() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let named = commands_of_table(&page("commands.md")?);
    let mut existing = BTreeSet::new();
    for program in ["platform", "platform-mixer"] {
        // Groups such as `racks` stand in the table by their verbs.
        let helps = crate::reference::helps(program, folder.path())?.into_iter();
        existing.extend(helps.filter_map(|(name, help)| (!crate::reference::is_group(&name, &help)).then_some(name)));
    }
    assert_eq!(named, existing);
    Ok(())
}

#[test]
fn every_make_target_that_the_readme_names_exists() -> Result<(), Failure> {
    let makefile = std::fs::read_to_string(project().join("Makefile"))?;
    let readme = readme()?;
    let mut lines: Vec<String> = blocks(&readme, "Two commands").concat();
    lines.extend(blocks(&readme, "First steps").concat());
    let targets: BTreeSet<String> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("make "))
        .flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace())
        .map(str::to_owned)
        .collect();
    assert!(targets.contains("demo") && targets.contains("test"), "{targets:?}");
    for target in &targets {
        let rule = format!("\n{target}:");
        assert!(makefile.contains(&rule), "the Makefile has no target {target}");
    }
    Ok(())
}
