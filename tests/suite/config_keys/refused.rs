//! Values that this version refuses: the start stops, the key is named, and what to do instead.

use harness::{Failure, binary, process};

#[test]
fn what_cannot_be_used_is_refused_with_what_to_do_instead() -> Result<(), Failure> {
    for (key, value, instead) in [
        ("observability.tier", "\"otlp\"", "observability.otlp.endpoint"),
        ("observability.otlp.forward", "true", "observability.otlp.endpoint_http"),
        ("api.tls_cert", "\"cert.pem\"", "api.tls_key"),
        ("api.tls_client_ca", "\"ca.pem\"", "api.tls_cert"),
        ("api.second_person", "[\"aprove\"]", "\"approve\", \"activate\""),
        ("observability.otlp.headers", "{ key = \"plain\" }", "${"),
    ] {
        let folder = tempfile::tempdir()?;
        let toml = format!("api.port = 0\nsnake.port = 0\n{key} = {value}\n");
        std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
        for arguments in [&[][..], &["config", "show"]] {
            let done = process::run(&binary("platform-mixer")?, arguments, folder.path(), &[])?;
            assert_eq!(done.code, Some(78), "{key}: {}", done.err);
            assert!(
                done.err.contains(key) && done.err.contains(instead) && done.err.contains("platform-mixer.toml:3"),
                "{key}: {}",
                done.err
            );
            assert!(!folder.path().join("data").exists(), "{key}: something was started");
        }
    }
    Ok(())
}

#[test]
fn a_misspelled_environment_name_is_reported_by_config_show_and_at_the_start() -> Result<(), Failure> {
    for program in ["platform", "platform-mixer"] {
        let folder = tempfile::tempdir()?;
        let env = [("PLATFORM_BASE_NAM", "x"), ("PLATFORM_SNAKE_SERVER_BINARY", "/none")];
        let shown = process::run(&binary(program)?, &["config", "show"], folder.path(), &env)?;
        assert_eq!(shown.code, Some(0), "{}", shown.err);
        assert!(
            shown
                .err
                .contains("unknown name PLATFORM_BASE_NAM; the nearest known name is PLATFORM_BASE_NAME"),
            "{}",
            shown.err
        );
    }
    // A start that ends at once, without a bus server.
    let folder = tempfile::tempdir()?;
    let env = [("PLATFORM_BASE_NAM", "x"), ("PLATFORM_SNAKE_SERVER_BINARY", "/none")];
    let started = process::run(&binary("platform-mixer")?, &[], folder.path(), &env)?;
    assert!(
        started.err.contains("unknown name PLATFORM_BASE_NAM"),
        "{}",
        started.err
    );
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
