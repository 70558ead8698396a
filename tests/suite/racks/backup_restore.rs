//! Backup and restore: what was decided since the backup was made is undone, and a rotated key does not come back unnoticed.

use harness::{Api, process};

use super::invites::{invite, join};
use super::states::goes;
use super::*;

/// Where a new backup lies, and of which moment it is.
fn backup(mixer: &TestMixer) -> Result<(String, String), Failure> {
    let made: Value = serde_json::from_str(&printed(mixer, &["backup", "-o", "ndjson"])?)?;
    let text = |key: &str| made[key].as_str().map(str::to_owned).ok_or("there is no backup");
    Ok((text("folder")?, text("ts")?))
}

/// A command of the Mixer's own program while it is stopped.
fn mixer_command(mixer: &TestMixer, args: &[&str]) -> Result<String, Failure> {
    let done = process::run(&binary("platform-mixer")?, args, mixer.path(), &[])?;
    assert_eq!(done.code, Some(0), "{args:?}: {}{}", done.out, done.err);
    Ok(done.out)
}

/// Restores a backup into the store of a Mixer that is stopped, and starts it. What the command said.
fn restore(mixer: &mut TestMixer, folder: &str) -> Result<String, Failure> {
    for name in ["registry.redb", "cluster.key"] {
        std::fs::remove_file(mixer.path().join("data").join(name))?;
    }
    let said = mixer_command(mixer, &["restore", folder])?;
    mixer.restart()?;
    Ok(said)
}

/// A Rack that waited for its approval and has it.
fn admitted(mixer: &TestMixer, name: &str) -> Result<TestRack, Failure> {
    let mut rack = TestRack::new(name, &mixer.bus_url, "")?;
    rack.spawn()?;
    rack.process()?.line("pending ", SOON)?;
    goes(mixer, name, "approve", "active")?;
    rack.process()?.line("ready ", SOON)?;
    Ok(rack)
}

/// Waits until a Rack says this, behind this part of its log.
fn says(rack: &TestRack, behind: usize, text: &str) -> Result<(), Failure> {
    eventually(text, SOON, || {
        let log = rack.log();
        log.get(behind..)?.contains(text).then_some(())
    })
    .map_err(|error| format!("{error}: {}", rack.log()).into())
}

/// Waits until it says so that it has the passport of an entity.
fn enrols(rack: &TestRack, behind: usize, id: &str) -> Result<(), Failure> {
    says(rack, behind, &format!("enrolled name={} id={id}", rack.name))
}

fn waits(mixer: &TestMixer, rack: &TestRack, behind: usize) -> Result<(), Failure> {
    says(rack, behind, "waiting for approval")?;
    becomes(mixer, &rack.name, "pending")
}

fn id_of(mixer: &TestMixer, rack: &str) -> Result<String, Failure> {
    let id = shown(mixer, rack)?["id"].as_str().map(str::to_owned);
    id.ok_or_else(|| format!("there is no Rack {rack}").into())
}

/// What a request with a token is answered.
fn status_of(mixer: &TestMixer, token: &str) -> Result<u16, Failure> {
    let answer = Api::guarded(&mixer.api.base, token, None)?.get("/api/v1/telemetry/logs")?;
    Ok(answer.status)
}

/// State and user of the only invite.
fn invited(mixer: &TestMixer) -> Result<(Value, Value), Failure> {
    let invites = mixer.api.rows("/api/v1/invites")?;
    assert_eq!(invites.len(), 1, "{invites:?}");
    Ok((invites[0]["state"].clone(), invites[0]["used_by"].clone()))
}

/// Three Racks after a backup that knows the first of them only.
struct LaterRacks {
    removed: TestRack,
    approved: TestRack,
    invited: TestRack,
}

/// Takes decisions that a backup does not have: a Rack is removed, one is approved, one joins, a token is revoked.
fn decide(mixer: &TestMixer, mut removed: TestRack, (token, text): (&str, &str)) -> Result<LaterRacks, Failure> {
    let former = id_of(mixer, "rack-a")?;
    goes(mixer, &former, "remove", "removed")?;
    says(&removed, 0, "was removed from this cluster")?;
    removed.kill9()?;
    let approved = admitted(mixer, "rack-b")?;
    printed(mixer, &["token", "revoke", "held", "--yes"])?;
    let mut invited_rack = TestRack::new("rack-c", &mixer.bus_url, "")?;
    let key = join(&invited_rack, text)?;
    invited_rack.start()?;

    becomes(mixer, "rack-b", "active")?;
    becomes(mixer, "rack-c", "active")?;
    assert_eq!(status_of(mixer, token)?, 401);
    assert_eq!(invited(mixer)?, (json!("used"), json!(key)));
    Ok(LaterRacks {
        removed,
        approved,
        invited: invited_rack,
    })
}

/// The audit log has the restore behind every number that was given out, and nothing of what is undone.
fn the_audit_log_tells_of_the_restore(mixer: &TestMixer, (last, moment): (u64, &str)) -> Result<(), Failure> {
    let restored = mixer.api.rows("/api/v1/audit?kind=backup_restored")?;
    assert_eq!(restored.len(), 1, "{restored:?}");
    assert_eq!(
        (&restored[0]["by"], &restored[0]["why"]),
        (&json!("mixer"), &json!(format!("of {moment}")))
    );
    assert!(
        restored[0]["id"].as_u64().is_some_and(|id| id > last),
        "{last}: {restored:?}"
    );
    for kind in ["rack_removed", "token_revoked"] {
        let entries = mixer.api.rows(&format!("/api/v1/audit?kind={kind}"))?;
        assert!(entries.is_empty(), "{entries:?}");
    }
    printed(mixer, &["audit", "verify"])?;
    Ok(())
}

#[test]
fn a_restored_backup_undoes_removals_admissions_and_revocations_and_the_audit_log_says_so() -> Result<(), Failure> {
    let mut mixer = strict()?;
    let rack = admitted(&mixer, "rack-a")?;
    obeys(&mixer, "rack-a")?;
    let former = id_of(&mixer, "rack-a")?;
    let token = printed(&mixer, &["token", "create", "held", "--role", "reader"])?;
    assert_eq!(status_of(&mixer, &token)?, 200);
    let text = invite(&mixer, "rack-c")?;
    let (folder, moment) = backup(&mixer)?;

    let mut racks = decide(&mixer, rack, (&token, &text))?;
    let last = mixer.api.rows("/api/v1/audit?limit=1")?[0]["id"].as_u64();
    let last = last.ok_or("the newest entry has no number")?;
    mixer.process()?.terminate(SOON)?;
    let behind = [&racks.removed, &racks.approved, &racks.invited].map(|rack| rack.log().len());
    let said = restore(&mut mixer, &folder)?;
    for command in ["platform token list", "platform racks list", "platform racks invites"] {
        assert!(said.contains(command), "it says where to look: {said}");
    }

    assert_eq!(status_of(&mixer, &token)?, 200, "the token is valid again");
    assert_eq!(
        invited(&mixer)?,
        (json!("open"), Value::Null),
        "the invite is open again"
    );
    the_audit_log_tells_of_the_restore(&mixer, (last, &moment))?;

    // The removed Rack belongs to the cluster again, as who it was.
    racks.removed.start()?;
    enrols(&racks.removed, behind[0], &former)?;
    becomes(&mixer, "rack-a", "active")?;
    assert_eq!(id_of(&mixer, "rack-a")?, former);
    obeys(&mixer, "rack-a")?;

    // Those that came since went on meanwhile, and ask again: also the invited one, which has shown its invite once.
    waits(&mixer, &racks.approved, behind[1])?;
    waits(&mixer, &racks.invited, behind[2])?;
    goes(&mixer, "rack-b", "approve", "active")?;
    enrols(&racks.approved, behind[1], &id_of(&mixer, "rack-b")?)?;
    obeys(&mixer, "rack-b")?;

    // Whoever has the text of the invite is admitted with it.
    let mut holder = TestRack::new("rack-c", &mixer.bus_url, "")?;
    let key = join(&holder, &text)?;
    holder.start()?;
    becomes(&mixer, "rack-c", "active")?;
    assert_eq!(shown(&mixer, "rack-c")?["key_fingerprint"], key);
    assert_eq!(invited(&mixer)?, (json!("used"), json!(key)));
    Ok(())
}

#[test]
fn a_rack_that_has_followed_a_new_cluster_key_does_not_follow_the_one_of_an_older_backup() -> Result<(), Failure> {
    // A Mixer that admits everybody: what does not happen is up to the Rack.
    let mut mixer = TestMixer::start("")?;
    let keys = [
        ("rack.enrollment_timeout", "\"5s\""),
        ("rack.heartbeat_interval", "\"1s\""),
    ];
    let mut rack = TestRack::with("rack-a", &mixer.bus_url, &keys, &[])?;
    rack.start()?;
    obeys(&mixer, "rack-a")?;
    let (older, _) = backup(&mixer)?;
    mixer.process()?.terminate(SOON)?;
    let rotated = mixer_command(&mixer, &["rotate-key", "cluster"])?;
    let newer = rotated
        .lines()
        .find_map(|line| line.strip_suffix(" has the new keys, earlier backups do not"))
        .ok_or("the rotation made no backup")?;
    mixer.restart()?;
    says(&rack, 0, "the cluster has another key")?;
    obeys(&mixer, "rack-a")?;
    mixer.process()?.terminate(SOON)?;
    eventually("the Rack misses the Mixer", SOON, || {
        let log = rack.log();
        let heard = log.rfind("enrolled name=").max(log.rfind("answers heartbeats again"));
        (log.rfind("heartbeat not answered") > heard).then_some(())
    })
    .map_err(|error| format!("{error}: {}", rack.log()))?;
    let state = rack.path().join("data/rack.flux");
    let followed = std::fs::read(&state)?;

    // While it runs it says whom it hears now, although it missed the Mixer before, and obeys nothing that the older key signs.
    let behind = rack.log().len();
    let said = restore(&mut mixer, &older)?;
    let cluster = said.split_whitespace().nth(2).ok_or("the restore names no cluster")?;
    let reason = format!(
        "the Mixer signs for cluster {cluster}, this Rack's own, with a key that does not follow the one that the Rack knows: its registry \
         was restored from before a rotation of the key"
    );
    says(&rack, behind, &reason)?;
    eventually("the Rack ignores a command", SOON, || {
        let path = "/api/v1/racks/rack-a/log-level";
        let answer = mixer.api.post(path, &json!({ "level": "debug" })).ok()?;
        assert_eq!(
            (answer.status, &answer.json["code"]),
            (503, &json!("rack_silent")),
            "{}",
            answer.text
        );
        let log = rack.log();
        log.get(behind..)?.contains("ignoring a command").then_some(())
    })
    .map_err(|error| format!("{error}: {}", rack.log()))?;

    // Started again it says why it is not enrolled.
    rack.kill9()?;
    let behind = rack.log().len();
    rack.spawn()?;
    says(&rack, behind, &reason)?;
    let log = rack.log();
    let since = log.get(behind..).unwrap_or_default();
    assert!(!since.contains("enrolled name="), "{since}");
    assert!(!since.contains("the Mixer set the log level"), "{since}");
    assert!(
        std::fs::read(&state)? == followed,
        "the Rack keeps the passport of the newer key"
    );

    // The backup that the rotation made is one that it follows.
    mixer.process()?.terminate(SOON)?;
    restore(&mut mixer, newer)?;
    eventually("a passport of the key that it knows", SOON, || {
        (std::fs::read(&state).ok()? != followed).then_some(())
    })
    .map_err(|error| format!("{error}: {}", rack.log()))?;
    obeys(&mixer, "rack-a")
}
