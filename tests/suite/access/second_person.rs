//! `api.second_person` on the command line: the first caller is told what waits, the second one has it done.

use harness::{Api, TestRack};

use super::*;

const SCENARIO: &str = "
meta: { name: demo, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 1 } }
";

#[test]
fn a_second_person_confirms_approvals_invites_and_activations() -> Result<(), Failure> {
    let (home, mixer, admin) = guarded(&[
        ("api.second_person", "[\"approve\", \"activate\"]"),
        ("enrollment.auto_adopt", "false"),
    ])?;
    let home = home.path();
    let operator = |name: &str| {
        let create = ["token", "create", name, "--role", "operator"];
        let (code, made, err) = platform(home, &mixer, &create, (&admin, ""))?;
        assert_eq!(code, 0, "{err}");
        Ok::<_, Failure>(made.trim().to_owned())
    };
    let (anna, ben) = (operator("anna")?, operator("ben")?);
    let run = |args: &[&str], token: &str| platform(home, &mixer, args, (token, ""));
    let waits = |args: &[&str], token: &str| {
        let (code, out, err) = run(args, token)?;
        assert_eq!((code, out.as_str()), (69, ""), "{args:?}: {err}");
        assert!(err.contains("nothing was changed yet: a second person"), "{err}");
        Ok::<_, Failure>(())
    };
    let done = |args: &[&str], token: &str| {
        let (code, out, err) = run(args, token)?;
        assert_eq!(code, 0, "{args:?}: {err}");
        Ok::<_, Failure>(out)
    };

    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.spawn()?;
    rack.process()?.line("pending ", std::time::Duration::from_secs(60))?;
    let shown: Value = serde_json::from_str(&done(&["racks", "show", "rack-a", "-o", "json"], &anna)?)?;
    let key = shown[0]["key_fingerprint"].as_str().unwrap_or_default();
    let approve = ["racks", "approve", "rack-a", "--key", key];
    waits(&approve, &anna)?;
    waits(&approve, &anna)?;
    let invite = ["racks", "invite", "rack-b"];
    waits(&invite, &anna)?;
    let listed: Value = serde_json::from_str(&done(&["requests", "list", "-o", "json"], &ben)?)?;
    let changes: Vec<_> = listed
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| &row["change"])
        .collect();
    assert_eq!(changes, [&json!("approve"), &json!("invite")], "{listed}");
    done(&approve, &ben)?;
    rack.process()?.line("ready ", std::time::Duration::from_secs(60))?;
    assert!(done(&invite, &ben)?.starts_with("plinv1_"));
    let told = done(&["audit", "--kind", "rack_approved", "-o", "json"], &admin)?;
    assert!(
        told.contains("token ben") && told.contains("requested by api 127.0.0.1 (token anna"),
        "{told}"
    );

    let file = home.join("demo.yaml");
    std::fs::write(&file, SCENARIO)?;
    let file = file.display().to_string();
    done(&["scenario", "import", &file], &admin)?;
    waits(&["scenario", "activate", "demo:1"], &anna)?;
    let answer = Api::guarded(&mixer.api.base, &anna, None)?.post("/api/v1/scenarios/demo:1/activate", &json!({}))?;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let waiting = &answer.json["data"];
    assert_eq!(
        (&waiting["change"], &waiting["reference"]),
        (&json!("activate"), &json!("demo:1"))
    );
    done(&["requests", "withdraw", &waiting["id"].to_string()], &ben)?;
    waits(&["scenario", "activate", "demo:1"], &ben)?;
    done(&["scenario", "activate", "demo:1"], &anna)?;
    Ok(())
}
