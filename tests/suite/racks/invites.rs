//! Invites with real Racks: each admits one, and none once it is revoked.

use std::path::Path;

use harness::process;

use super::*;

/// The text of a new invite.
pub(super) fn invite(mixer: &TestMixer, name: &str) -> Result<String, Failure> {
    printed(mixer, &["racks", "invite", name])
}

/// Has a Rack that does not run join with an invite; its key.
pub(super) fn join(rack: &TestRack, invite: &str) -> Result<String, Failure> {
    let joined = process::run(&binary("platform")?, &["join", invite], rack.path(), &[])?;
    assert_eq!(joined.code, Some(0), "{}{}", joined.out, joined.err);
    let key = joined.out.trim().rsplit(' ').next().unwrap_or_default();
    assert!(key.starts_with("SHA256:"), "{}", joined.out);
    Ok(key.to_owned())
}

#[test]
fn a_second_rack_with_an_invite_is_refused_and_told_by_which_key_it_was_used() -> Result<(), Failure> {
    let mixer = strict()?;
    let text = invite(&mixer, "press")?;
    let mut first = TestRack::new("press", &mixer.bus_url, "")?;
    let key = join(&first, &text)?;
    first.start()?;
    becomes(&mixer, "press", "active")?;

    let mut second = TestRack::new("press", &mixer.bus_url, "")?;
    let other = join(&second, &text)?;
    assert_ne!(other, key);
    second.spawn()?;
    let said = eventually("the refusal at the second Rack", SOON, || {
        let log = second.log();
        log.lines()
            .find(|line| line.contains("the invite for press was used at"))
            .map(str::to_owned)
    })
    .map_err(|error| format!("{error}: {}", second.log()))?;
    for part in [
        key.as_str(),
        "somebody else has the invite",
        "platform racks remove press",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }

    let racks = mixer.api.rows("/api/v1/racks")?;
    assert_eq!(racks.len(), 1, "{racks:?}");
    assert_eq!(racks[0]["key_fingerprint"], key, "the first one has the name");
    obeys(&mixer, "press")?;
    let invites = mixer.api.rows("/api/v1/invites")?;
    assert_eq!(invites.len(), 1, "{invites:?}");
    assert_eq!(
        (&invites[0]["state"], &invites[0]["used_by"]),
        (&json!("used"), &json!(key))
    );
    // Once for each time that it asked so far.
    let refused = mixer.api.rows("/api/v1/audit?kind=invite_refused")?;
    assert!(!refused.is_empty());
    for entry in &refused {
        let why = entry["why"].as_str().unwrap_or_default();
        assert!(entry["rack"] == "press" && why.starts_with(&other), "{entry:?}");
    }
    Ok(())
}

#[test]
fn a_rack_with_a_revoked_invite_is_refused_and_joins_with_a_new_one() -> Result<(), Failure> {
    let mixer = strict()?;
    let revoked = invite(&mixer, "press")?;
    printed(&mixer, &["racks", "revoke-invite", "press"])?;
    assert!(mixer.api.rows("/api/v1/invites")?.is_empty(), "nothing of it is left");
    let twice = mixer.platform(&["racks", "revoke-invite", "press"])?;
    assert_eq!(twice.code, Some(1), "{}{}", twice.out, twice.err);

    let mut rack = TestRack::new("press", &mixer.bus_url, "")?;
    let key = join(&rack, &revoked)?;
    rack.spawn()?;
    eventually("the refusal at the Rack", SOON, || {
        let log = rack.log();
        log.contains("the invite is not known here: it was revoked")
            .then_some(())
    })
    .map_err(|error| format!("{error}: {}", rack.log()))?;
    assert!(mixer.api.rows("/api/v1/racks")?.is_empty(), "it does not even wait");
    assert_eq!(mixer.api.rows("/api/v1/audit?kind=invite_revoked")?.len(), 1);
    let refused = mixer.api.rows("/api/v1/audit?kind=invite_refused")?;
    assert!(refused.is_empty(), "anybody can send an unknown invite: {refused:?}");

    rack.kill9()?;
    let fresh = invite(&mixer, "press")?;
    assert_eq!(join(&rack, &fresh)?, key, "it is the same Rack");
    rack.start()?;
    becomes(&mixer, "press", "active")?;
    assert_eq!(shown(&mixer, "press")?["key_fingerprint"], key);
    Ok(())
}

#[test]
fn a_rack_says_whether_it_has_joined_and_an_invite_admits_one_that_waits() -> Result<(), Failure> {
    let mixer = strict()?;
    let mut rack = TestRack::new("press", &mixer.bus_url, "")?;
    let check = |folder: &Path| process::run(&binary("platform")?, &["join", "--check"], folder, &[]);
    let fresh = check(rack.path())?;
    assert_eq!(fresh.code, Some(1), "{}{}", fresh.out, fresh.err);

    // A start alone is no admission: it waits.
    rack.spawn()?;
    rack.process()?.line("pending ", SOON)?;
    rack.kill9()?;
    let waits = check(rack.path())?;
    assert_eq!(waits.code, Some(1), "{}{}", waits.out, waits.err);
    assert!(waits.err.contains("no Mixer has admitted it"), "{}", waits.err);

    join(&rack, &invite(&mixer, "press")?)?;
    let invited = check(rack.path())?;
    assert_eq!(invited.code, Some(0), "{}{}", invited.out, invited.err);
    assert_eq!(
        invited.out.trim(),
        format!("this Rack keeps an invite as press for {}", mixer.bus_url)
    );
    rack.start()?;
    becomes(&mixer, "press", "active")?;
    // Whoever reads the state file of a Rack that runs changes nothing in it.
    let admitted = check(rack.path())?;
    assert_eq!(
        (admitted.code, admitted.out.trim()),
        (Some(0), "a Mixer admitted this Rack as press")
    );
    Ok(())
}
