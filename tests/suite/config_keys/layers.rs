//! Flags win over the environment, that over the file, that over the defaults.

use harness::{Failure, binary, process};

#[test]
fn flags_win_over_the_environment_that_over_the_file_that_over_the_defaults() -> Result<(), Failure> {
    let file = "[LOGGING]\nlevel = \"error\"\nmax_backups = 2\ncompress = false\n";
    for program in ["platform", "platform-mixer"] {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join(format!("{program}.toml")), file)?;
        let envs = [
            ("PLATFORM_LOGGING_LEVEL", "warn"),
            ("PLATFORM_LOGGING_MAX_BACKUPS", "5"),
        ];
        let show = |args: &[&str], envs: &[(&str, &str)]| {
            let args: Vec<_> = args.iter().copied().chain(["config", "show", "--origin"]).collect();
            let done = process::run(&binary(program)?, &args, folder.path(), envs)?;
            assert_eq!(done.code, Some(0), "{}", done.err);
            Ok::<_, Failure>(done.out)
        };
        let line = |text: &str, key: &str| {
            let found = text.lines().find(|line| line.starts_with(&format!("{key} = ")));
            found.unwrap_or_default().to_owned()
        };
        let all = show(&["--level", "debug"], &envs)?;
        assert!(line(&all, "level").starts_with("level = \"debug\""), "{program}: {all}");
        let backups = line(&all, "max_backups");
        assert!(
            backups.starts_with("max_backups = 5") && backups.contains("PLATFORM_LOGGING_MAX_BACKUPS"),
            "{program}: {backups}"
        );
        let compress = line(&all, "compress");
        assert!(
            compress.starts_with("compress = false") && compress.contains(&format!("{program}.toml")),
            "{program}: {compress}"
        );
        assert!(
            line(&all, "max_size_mb").starts_with("max_size_mb = 100"),
            "{program}: {all}"
        );
        assert!(
            line(&show(&[], &envs)?, "level").starts_with("level = \"warn\""),
            "{program}"
        );
        assert!(
            line(&show(&[], &[])?, "level").starts_with("level = \"error\""),
            "{program}"
        );
    }
    Ok(())
}
