//! `platform join`: keeps an invite in the state of this machine's Rack.
//!
//! Not here: what the Rack does with it at its start (`rack`).

use std::io::{self, Read, Write};

use chassis::os_entropy;
use model::RackInvite;
use rack::config::{RackConfig, SCHEMA};

use crate::args::{GlobalArgs, JoinArgs};
use crate::commands::config::sources;
use crate::error::Error;

/// No invite is as long.
const LONGEST: u64 = 4_096;

pub(crate) fn run(global: &GlobalArgs, args: &JoinArgs) -> Result<(), Error> {
    let text = match &args.invite {
        Some(text) => text.clone(),
        None => {
            let mut text = String::new();
            io::stdin().lock().take(LONGEST).read_to_string(&mut text)?;
            text
        }
    };
    let invite: RackInvite = text
        .parse()
        .map_err(|error| Error::Usage(format!("the invite: {error}")))?;
    let settings = chassis::config::load(&SCHEMA, &sources(global)).map_err(|bad| Error::Config(bad.to_string()))?;
    let config = RackConfig::of(&settings).map_err(|bad| Error::Config(bad.to_string()))?;
    let (name, url, cluster) = (invite.name.clone(), invite.url.clone(), invite.cluster);
    let kept = rack::join(&config, invite, &os_entropy()).map_err(|error| Error::Process {
        exit: error.exit(),
        reason: error.to_string(),
    })?;
    writeln!(
        io::stdout(),
        "this Rack joins {url} as {name} at its next start; its key is {}",
        kept.rack_key
    )?;
    if let Some(ours) = kept.other_cluster_key {
        writeln!(
            io::stderr(),
            "it belongs to the cluster with the key {ours}, and the invite names {cluster}: it goes on where that key follows its own \
             (platform-mixer rotate-key); to move it to another cluster, move {} away and join again",
            config.base.state_file.display()
        )?;
    }
    Ok(())
}
