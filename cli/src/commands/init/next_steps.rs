//! The last words of `platform init`: the commands that start what it wrote, and what they need first.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Gid, Group};

use super::{InitPlan, LogSource, files};

/// The user of the Rack's unit.
const SERVICE_USER: &str = "platform";
/// What has the Rack of the packages join the Mixer of its machine.
const JOIN_LOCAL: &str = "/usr/lib/platform/join-local";

/// What to do now, a command a line.
pub(super) fn next_steps(plan: &InitPlan) -> String {
    let then = if plan.has_mixer() {
        format!(
            "  platform logs --wait 30s\nand where the Mixer has a scenario already, which it keeps:\n  platform scenario import {}\n  \
             platform scenario activate {}:{}",
            plan.path(files::SCENARIO).display(),
            files::scenario_name(plan),
            files::SCENARIO_VERSION
        )
    } else {
        format!(
            "what it does is said by the Mixer's scenario: one with a gear for {} has to be active there (platform scenario activate FILE)",
            plan.name
        )
    };
    let readable = match &plan.source {
        LogSource::Journal if !plan.is_for_services() => {
            Some("who runs the Rack must be root, or in the group systemd-journal".to_owned())
        }
        LogSource::File(file) if plan.is_for_services() => how_to_read(file),
        _ => None,
    };
    let start = format!("now:\n{}\n{then}", start_commands(plan));
    let parts = [readable, Some(start), former_mixer(plan)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The commands that start what was written. A Rack beside its Mixer is invited once that runs; the packages do so by themselves.
fn start_commands(plan: &InitPlan) -> String {
    let (mixer, rack) = (plan.path(files::MIXER), plan.path(files::RACK));
    let (mixer, rack) = (mixer.display(), rack.display());
    let invite = format!("  platform racks invite {} | ", plan.name);
    match (plan.is_for_services(), plan.has_mixer()) {
        (true, true) if Path::new(JOIN_LOCAL).exists() => "  systemctl restart platform-mixer platform".to_owned(),
        (true, true) => format!(
            "  systemctl restart platform-mixer\n{invite}runuser -u {SERVICE_USER} -- platform join -c {rack}\n  systemctl restart platform"
        ),
        (true, false) => "  systemctl restart platform".to_owned(),
        (false, true) => format!(
            "  platform-mixer -c {mixer} &\nonce that has said `ready`:\n{invite}platform join -c {rack}\n  platform -c {rack} &"
        ),
        (false, false) => format!("  platform -c {rack} &"),
    }
}

/// What lets the Rack's service read a file, where not everybody may.
fn how_to_read(file: &Path) -> Option<String> {
    // Others read the file, and pass its folders.
    let needed = |path: &Path| -> u32 { if path == file { 0o4 } else { 0o1 } };
    let closed = file.ancestors().find_map(|path| {
        let found = std::fs::metadata(path).ok()?;
        (found.mode() & needed(path) == 0).then_some((path, found))
    });
    let (path, found) = closed?;
    let group = Group::from_gid(Gid::from_raw(found.gid())).ok().flatten();
    let group = group.map_or_else(|| found.gid().to_string(), |group| group.name);
    if found.mode() & (needed(path) << 3) == 0 {
        return Some(format!(
            "{} is its owner's alone: let a group in that the service's user, {SERVICE_USER}, is in",
            path.display()
        ));
    }
    (group != SERVICE_USER).then(|| {
        format!(
            "the service's user may not read {}, which is for the group {group}: `systemctl edit platform`, and there\n  \
             [Service]\n  SupplementaryGroups={group}",
            file.display()
        )
    })
}

/// What becomes of a Mixer that was configured here when the Rack joins another one.
fn former_mixer(plan: &InitPlan) -> Option<String> {
    let file = plan.path(files::MIXER);
    if plan.has_mixer() || !file.exists() {
        return None;
    }
    let end = match plan.is_for_services() {
        true => "  systemctl disable --now platform-mixer",
        false => "stop it, and start it no more",
    };
    Some(format!(
        "the Mixer of {} stays as it is; where nobody needs it any more:\n{end}",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use nix::unistd::getegid;

    use super::super::{InviteSource, SERVICE_FOLDER};
    use super::*;

    #[test]
    fn a_service_is_told_the_group_of_a_log_file_that_is_not_for_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("syslog");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let group = Group::from_gid(getegid()).unwrap();
        let group = group.map_or_else(|| getegid().to_string(), |group| group.name);
        let said = |mode: u32| {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            how_to_read(&file)
        };
        let told = said(0o640).unwrap();
        assert!(told.contains("systemctl edit platform"), "{told}");
        assert!(
            told.ends_with(&format!("\n  [Service]\n  SupplementaryGroups={group}")),
            "{told}"
        );
        let alone = said(0o600).unwrap();
        assert!(
            alone.starts_with(&format!("{} is its owner's alone", file.display())),
            "{alone}"
        );
        // A folder that others may not pass counts too.
        let above = said(0o644).unwrap();
        assert!(
            above.starts_with(&format!("{} is its owner's alone", folder.path().display())),
            "{above}"
        );
        assert_eq!(how_to_read(Path::new("/etc/passwd")), None);
        assert_eq!(how_to_read(Path::new("/etc/there-is-no-such-file")), None);
    }

    #[test]
    fn a_rack_beside_its_mixer_is_invited_and_a_mixer_that_is_left_behind_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = InitPlan {
            folder: folder.path().to_owned(),
            name: "press-1".parse().unwrap(),
            source: LogSource::Journal,
            joins: None,
            replaces: true,
        };
        let invited = format!(
            "\n  platform racks invite press-1 | platform join -c {}/platform.toml\n",
            folder.path().display()
        );
        assert!(next_steps(&plan).contains(&invited), "{}", next_steps(&plan));
        std::fs::write(plan.path(files::MIXER), "").unwrap();
        assert_eq!(former_mixer(&plan), None);
        plan.joins = Some(InviteSource::AskedAt("http://mixer".to_owned()));
        assert!(
            next_steps(&plan).contains("platform-mixer.toml stays as it is"),
            "{}",
            next_steps(&plan)
        );
        assert!(!next_steps(&plan).contains("racks invite"));
        std::fs::remove_file(plan.path(files::MIXER)).unwrap();
        assert_eq!(former_mixer(&plan), None);
        plan.folder = SERVICE_FOLDER.into();
        plan.joins = None;
        let is_invited = start_commands(&plan)
            .contains("press-1 | runuser -u platform -- platform join -c /etc/platform/platform.toml\n");
        assert_eq!(
            is_invited,
            !Path::new(JOIN_LOCAL).exists(),
            "the packages do it by themselves"
        );
    }
}
