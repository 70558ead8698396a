//! The section `[policy]` of `platform.toml`.

use std::path::PathBuf;

use chassis::config_section;

use super::address_rule::AddressRule;

config_section! {
    /// What scenarios may ask of this Rack. No scenario can widen it; one that asks for more is not applied.
    pub struct PolicyConfig in "policy" {
        /// Gear types that scenarios may use here; `*` is every type.
        gears: Vec<String> = ["*"];
        /// Folders beneath which gears may read files: what file_tail follows, modules of wasm, certificates, keys and passwords. A relative
        /// path of a scenario is one beneath the first of them.
        read_roots: Vec<PathBuf>, below("store.dir", "files");
        /// Folders beneath which gears may write files (file_out). A relative path of a scenario is one beneath the first of them.
        write_roots: Vec<PathBuf>, below("store.dir", "files");
        /// Where gears may listen: addresses or networks with a port, a range of ports or none, such as `0.0.0.0:514` or
        /// `10.0.0.0/8:8000-8999`; `*` is everywhere.
        listen: Vec<String> = ["127.0.0.1", "::1"];
        /// Where gears may connect: addresses, networks or host names, with a port, a range of ports or none. `*` is everywhere but this
        /// machine (loopback and the addresses of its interfaces), link-local addresses and those where clouds give credentials away: these
        /// must be listed themselves, as in `127.0.0.1:8090`.
        connect: Vec<String> = ["*"];
        /// Variables of the Rack's environment that scenarios may use as `${NAME}` and give to programs; `APP_*` is every variable whose name
        /// begins so. Settings (PLATFORM_…) are never given away.
        env: Vec<String> = [];
        /// Whether the kernel confines the whole process, and the programs of `exec`, to the files that this configuration names (Landlock):
        /// `auto` where the kernel can, `require` does not start without it, `off` never.
        sandbox: SandboxMode { Auto = "auto", Require = "require", Off = "off" } = "auto";
    }
}

/// Whether the kernel confines the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxMode {
    /// Where it can.
    Auto,
    /// The Rack does not start otherwise.
    Require,
    /// It does not.
    Off,
}

/// The first value that a key cannot have, and what is wanted in its place.
pub(crate) fn invalid_value(policy: &PolicyConfig) -> Option<(&'static str, &str, String)> {
    let kinds = gear_spec::manifests();
    let is_kind = |kind: &str| kind == "*" || kinds.iter().any(|manifest| manifest.kind == kind);
    if let Some(kind) = policy.gears.iter().find(|kind| !is_kind(kind)) {
        let known = model::gear_manifest::names(kinds);
        return Some(("policy.gears", kind, format!("* or types of gears: {known}")));
    }
    let is_listener = |text: &str| text.parse().is_ok_and(|rule: AddressRule| !rule.is_name());
    if let Some(text) = policy.listen.iter().find(|text| !is_listener(text)) {
        let wanted = "addresses or networks with a port, a range of ports or none, such as 127.0.0.1, 10.0.0.5:514 or 0.0.0.0:8000-8999";
        return Some(("policy.listen", text, wanted.to_owned()));
    }
    let is_target = |text: &&String| text.parse::<AddressRule>().is_ok();
    if let Some(text) = policy.connect.iter().find(|text| !is_target(text)) {
        let wanted = "*, addresses, networks or names with a port, a range of ports or none, such as 10.0.0.0/8, 127.0.0.1:8090 or \
                      collector.example:443";
        return Some(("policy.connect", text, wanted.to_owned()));
    }
    None
}
