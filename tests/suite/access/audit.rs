//! Refused calls in the audit log, and the hash chain that shows that nobody changed it.

use super::*;

const READY: std::time::Duration = std::time::Duration::from_secs(60);

/// The rows that a command prints as JSON lines.
fn rows(home: &Path, mixer: &TestMixer, args: &[&str], token: &str) -> Result<Vec<Value>, Failure> {
    let (code, out, err) = platform(home, mixer, &[args, &["-o", "ndjson"]].concat(), (token, ""))?;
    match code {
        0 => Ok(out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?),
        _ => Err(format!("{args:?}: {code} {err}").into()),
    }
}

#[test]
fn refused_calls_are_in_the_audit_log_whose_chain_and_checkpoints_hold() -> Result<(), Failure> {
    let (home, mut mixer, admin) = guarded(&[("postgres.enabled", "true"), ("postgres.port", "0")])?;
    let home = home.path();
    let (code, made, err) = platform(
        home,
        &mixer,
        &["token", "create", "ear", "--role", "reader"],
        (&admin, ""),
    )?;
    assert_eq!(code, 0, "{err}");
    let reader = made.split_whitespace().find(|word| word.starts_with("plt_"));
    let reader = reader.ok_or("no token in the answer")?;
    for _ in 0..3 {
        assert_eq!(mixer.api.get("/api/v1/racks")?.status, 401);
    }
    assert_eq!(platform(home, &mixer, &["audit"], (reader, ""))?.0, 77);
    let failed = selected(&mixer, "ear", &admin, "SELECT 1")
        .err()
        .ok_or("a wrong password opened")?;
    assert_eq!(sqlstate(&failed), "28P01");
    let refused = ["audit", "--kind", "call_refused"];
    // Each is told once at once; how often it came again, when the hour is over or the Mixer stops.
    harness::eventually("three refusals in the audit log", READY, || {
        let told = rows(home, &mixer, &refused, &admin).ok()?;
        (told.len() == 3).then_some(())
    })?;
    mixer.process()?.terminate(READY)?;
    mixer.restart()?;
    let told = rows(home, &mixer, &refused, &admin)?;
    let mut told: Vec<_> = told
        .iter()
        .map(|row| {
            (
                row["by"].as_str().unwrap_or_default(),
                row["why"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    told.sort_unstable();
    let has = |by: &str, why: &str| told.iter().any(|(b, w)| b.contains(by) && w.starts_with(why));
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(has("api 127.0.0.1", "GET /api/v1/racks: a token is needed"), "{told:?}");
    assert!(
        has("api 127.0.0.1", "2 more times within the hour: GET /api/v1/racks:"),
        "{told:?}"
    );
    assert!(has(" as reader)", "GET /api/v1/audit: the role reader"), "{told:?}");
    assert!(has("postgres 127.0.0.1", "the login failed (28P01)"), "{told:?}");

    let checkpoints = rows(home, &mixer, &["audit", "checkpoints"], &admin)?;
    let [checkpoint] = &checkpoints[..] else {
        return Err(format!("not one checkpoint: {checkpoints:?}").into());
    };
    std::fs::write(home.join("kept.ndjson"), format!("{checkpoint}\n"))?;
    let verify = ["audit", "verify", "--checkpoints", "kept.ndjson"];
    let verdict = rows(home, &mixer, &verify, &admin)?;
    assert_eq!(verdict[0]["checkpoints"], 2);
    let key = verdict[0]["signed_by"][0].as_str().ok_or("no key")?;
    let known = [&verify[..], &["--cluster-key", key]].concat();
    assert_eq!(rows(home, &mixer, &known, &admin)?, verdict);

    // A checkpoint that says another key than the one that signed it.
    let mut forged = checkpoint.clone();
    let digits = forged["signed_by"].as_str().ok_or("no key")?;
    forged["signed_by"] = digits.replace(|digit: char| digit.is_ascii_digit(), "a").into();
    std::fs::write(home.join("kept.ndjson"), forged.to_string())?;
    let (code, _, err) = platform(home, &mixer, &known, (&admin, ""))?;
    assert_eq!(code, 65, "{err}");
    assert!(err.contains("is not signed by"), "{err}");
    Ok(())
}
