//! The page of all commands, made of what the programs themselves say.

use std::fmt::Write as _;
use std::path::Path;

use harness::{Failure, binary, process};

const HEAD: &str = "# Commands

<!-- Generated from the programs' own help; a test compares. Regenerate it with: make docs -->

Standard output carries data only, everything else goes to standard error. Control characters in stored text are never
written as they are. Colours appear only on a terminal, and never with `NO_COLOR`. Exit codes: 0 done, 1 what was asked
for by id is not there or a test failed, 64 usage, 65 bad data or an incomplete answer, 69 nobody answers, 74 input or output,
77 denied, 78 configuration, 130 interrupted.
";

/// Whether a command of a program is none without one of those below it.
pub(crate) fn is_group(name: &[String], help: &str) -> bool {
    let mut usage = help.lines().filter(|line| line.starts_with("Usage:"));
    name.len() > 1 && usage.any(|line| line.ends_with("<COMMAND>"))
}

/// Every command of a program, as words, with its help; parents before their children.
pub(crate) fn helps(program: &str, folder: &Path) -> Result<Vec<(Vec<String>, String)>, Failure> {
    let mut open = vec![vec![program.to_owned()]];
    let mut all = Vec::new();
    while let Some(command) = open.pop() {
        let words: Vec<&str> = command[1..].iter().map(String::as_str).chain(["--help"]).collect();
        let done = process::run(&binary(program)?, &words, folder, &[])?;
        if done.code != Some(0) {
            return Err(format!("{program} {words:?}: {:?} {}", done.code, done.err).into());
        }
        let mut children: Vec<Vec<String>> = subcommands(&done.out)
            .map(|name| {
                let mut child = command.clone();
                child.push(name.to_owned());
                child
            })
            .collect();
        children.reverse();
        open.extend(children);
        all.push((command, done.out));
    }
    Ok(all)
}

/// The names under `Commands:` of a help text.
fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
}

#[test]
fn the_reference_page_of_the_commands_is_what_the_programs_say() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mut wanted = HEAD.to_owned();
    for program in ["platform", "platform-mixer"] {
        for (command, help) in helps(program, folder.path())? {
            let level = if command.len() == 1 { "##" } else { "###" };
            let text: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
            write!(
                wanted,
                "\n{level} `{}`\n\n```text\n{}\n```\n",
                command.join(" "),
                text.join("\n")
            )?;
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    if std::env::var_os("UPDATE").is_some() {
        return Ok(std::fs::write(path, wanted)?);
    }
    let page = std::fs::read_to_string(path)?;
    assert_eq!(page, wanted, "docs/cli.md is not the generated one: make docs");
    Ok(())
}

#[test]
fn the_manual_page_of_the_mixer_has_all_of_its_commands() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/debian/platform-mixer/platform-mixer.1");
    let page = std::fs::read_to_string(path)?;
    let all = helps("platform-mixer", folder.path())?;
    let names: Vec<&String> = all
        .iter()
        .filter(|(words, _)| words.len() == 2)
        .map(|(words, _)| &words[1])
        .collect();
    assert!(names.len() > 5, "{names:?}");
    for name in names {
        let heading = format!(".B {}\n", name.replace('-', "\\-"));
        assert!(page.contains(&heading), "it lacks {heading}");
    }
    Ok(())
}
