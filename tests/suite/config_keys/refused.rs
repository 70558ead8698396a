//! Values that this version refuses: the start stops, the key is named, and what to do instead.

use harness::{Failure, binary, process};

#[test]
fn what_is_not_in_this_version_is_refused_with_what_to_do_instead() -> Result<(), Failure> {
    for (key, value, instead) in [
        ("observability.tier", "\"otlp\"", "use \"embedded\""),
        ("observability.otlp.messages.enabled", "true", "set it to false"),
        ("api.tls_cert", "\"cert.pem\"", "proxy"),
        ("api.tls_key", "\"key.pem\"", "proxy"),
        ("api.tokens_file", "\"tokens\"", "loopback"),
        ("observability.otlp.headers", "{ key = \"plain\" }", "${"),
    ] {
        let folder = tempfile::tempdir()?;
        let toml = format!("api.port = 0\nsnake.port = 0\n{key} = {value}\n");
        std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
        let done = process::run(&binary("platform-mixer")?, &[], folder.path(), &[])?;
        assert_eq!(done.code, Some(78), "{key}: {}", done.err);
        assert!(
            done.err.contains(key) && done.err.contains(instead),
            "{key}: {}",
            done.err
        );
    }
    Ok(())
}

#[test]
fn a_plain_token_in_a_file_is_refused_and_its_variable_named() -> Result<(), Failure> {
    for program in ["platform", "platform-mixer"] {
        let folder = tempfile::tempdir()?;
        let toml = "snake.token = \"plain\"\n";
        std::fs::write(folder.path().join(format!("{program}.toml")), toml)?;
        let done = process::run(&binary(program)?, &[], folder.path(), &[])?;
        assert_eq!(done.code, Some(78), "{}", done.err);
        assert!(done.err.contains("PLATFORM_SNAKE_TOKEN"), "{}", done.err);
    }
    Ok(())
}
