//! `platform join`: keeps an invite in the state of this machine's Rack, or says whether that has one or needs none any more.
//!
//! Not here: what the Rack does with it at its start (`rack`).

use std::io::{self, Read, Write};

use chassis::os_entropy;
use model::RackInvite;
use rack::AdmissionStatus;
use rack::config::{RackConfig, SCHEMA};

use crate::args::{GlobalArgs, JoinArgs};
use crate::commands::config::sources;
use crate::error::Error;

/// No invite is as long.
const LONGEST: u64 = 4_096;

pub(crate) fn run(global: &GlobalArgs, args: &JoinArgs) -> Result<(), Error> {
    if args.check {
        return check(&config_of(global)?);
    }
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
    let config = config_of(global)?;
    let (name, url, cluster) = (invite.name.clone(), invite.url.clone(), invite.cluster);
    let kept = rack::join(&config, invite, &os_entropy()).map_err(refused)?;
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

/// Says whether the Rack was admitted or keeps an invite, without making or changing anything.
fn check(config: &RackConfig) -> Result<(), Error> {
    let said = match rack::admission_status(config, &os_entropy()).map_err(refused)? {
        AdmissionStatus::Admitted(name) => format!("a Mixer admitted this Rack as {name}"),
        AdmissionStatus::Invited { name, url } => format!("this Rack keeps an invite as {name} for {url}"),
        AdmissionStatus::NotStarted | AdmissionStatus::Unapproved => {
            return Err(Error::NotFound(
                "this Rack has no invite, and no Mixer has admitted it: `platform racks invite` at its Mixer, then `platform join` here".to_owned(),
            ));
        }
    };
    writeln!(io::stdout(), "{said}")?;
    Ok(())
}

fn config_of(global: &GlobalArgs) -> Result<RackConfig, Error> {
    let settings = chassis::config::load(&SCHEMA, &sources(global)).map_err(|bad| Error::Config(bad.to_string()))?;
    RackConfig::of(&settings).map_err(|bad| Error::Config(bad.to_string()))
}

fn refused(error: rack::Error) -> Error {
    Error::Process {
        exit: error.exit(),
        reason: error.to_string(),
    }
}
