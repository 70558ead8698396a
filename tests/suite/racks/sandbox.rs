//! The sandbox of a Rack's process, seen from outside.

use super::*;

/// Whether each thread of a process can gain no privileges any more, which is the first step of confining itself.
fn is_confined(pid: impl std::fmt::Display) -> Result<bool, Failure> {
    let mut threads = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(thread?.path().join("status"))?;
        threads.push(status.contains("NoNewPrivs:\t1"));
    }
    let confined = threads.iter().filter(|is_confined| **is_confined).count();
    assert!(
        threads.len() > 1 && [0, threads.len()].contains(&confined),
        "{threads:?}"
    );
    Ok(confined > 0)
}

#[test]
fn every_thread_of_a_rack_is_confined_unless_its_operator_says_otherwise() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    for (sandbox, said, is_wanted) in [
        ("auto", "Landlock confines this process", true),
        ("off", "the sandbox is off (policy.sandbox)", false),
    ] {
        let quoted = format!("{sandbox:?}");
        let mut rack = TestRack::with(
            &format!("rack-{sandbox}"),
            &mixer.bus_url,
            &[("policy.sandbox", &quoted)],
            &[],
        )?;
        rack.start()?;
        let log = rack.log();
        if log.contains("this process is not confined") {
            continue;
        }
        assert!(log.contains(said), "{log}");
        assert_eq!(is_confined(rack.process()?.pid())?, is_wanted, "{sandbox}");
    }
    Ok(())
}
