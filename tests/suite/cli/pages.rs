//! Completions and manual pages: what they say is what the program understands.

use std::process::Command;

use harness::process::run;
use harness::{Failure, binary};

use crate::reference::helps;

#[test]
fn a_shell_completes_commands_and_flags() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let script = run(&binary("platform")?, &["completions", "bash"], folder.path(), &[])?;
    assert_eq!(script.code, Some(0), "{}", script.err);
    std::fs::write(folder.path().join("platform.bash"), script.out)?;
    let completes = |words: &str, at: usize, last: &str, before: &str| -> Result<String, Failure> {
        let asks = format!(
            "source ./platform.bash; COMP_WORDS=({words}); COMP_CWORD={at}; _platform platform {last:?} {before:?}; echo \"${{COMPREPLY[*]}}\""
        );
        let done = Command::new("bash")
            .args(["--norc", "-c", &asks])
            .current_dir(folder.path())
            .output()?;
        assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8(done.stdout)?.trim().to_owned())
    };
    assert_eq!(completes("platform met", 1, "met", "platform")?, "metrics");
    assert_eq!(completes("platform logs --min", 2, "--min", "logs")?, "--min-level");
    assert_eq!(completes("platform logs --output nd", 3, "nd", "--output")?, "ndjson");
    assert_eq!(completes("platform racks app", 2, "app", "racks")?, "approve");
    Ok(())
}

#[test]
fn every_shell_is_told_every_command() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let commands = helps("platform", folder.path())?;
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&binary("platform")?, &["completions", shell], folder.path(), &[])?;
        assert_eq!(script.code, Some(0), "{shell}: {}", script.err);
        for (words, _) in &commands {
            let word = words.last().ok_or("a command without a name")?;
            assert!(script.out.contains(word.as_str()), "{shell} is not told {words:?}");
        }
    }
    let unknown = run(&binary("platform")?, &["completions", "csh"], folder.path(), &[])?;
    assert!(
        unknown.code == Some(64) && unknown.err.contains("fish"),
        "{}",
        unknown.err
    );
    Ok(())
}

#[test]
fn every_command_has_a_manual_page() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let pages = folder.path().join("man/man1");
    let man = pages.display().to_string();
    let done = run(&binary("platform")?, &["man", &man], folder.path(), &[])?;
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "", ""));
    let commands = helps("platform", folder.path())?;
    for (words, help) in &commands {
        let path = pages.join(format!("{}.1", words.join("-")));
        let page = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let says = help
            .lines()
            .next()
            .unwrap_or_default()
            .split(':')
            .next()
            .unwrap_or_default();
        // As troff writes it.
        let says = says.replace('-', "\\-").replace('\'', "\\*(Aq");
        assert!(page.contains(".TH ") && page.contains(&says), "{words:?}: {page}");
    }
    assert_eq!(std::fs::read_dir(&pages)?.count(), commands.len(), "no page of nothing");

    std::fs::write(folder.path().join("taken"), "a file")?;
    let done = run(&binary("platform")?, &["man", "taken"], folder.path(), &[])?;
    assert!(
        done.code == Some(74) && done.err.contains("taken"),
        "{:?} {}",
        done.code,
        done.err
    );
    Ok(())
}
