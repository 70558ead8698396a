//! What the numbers of an outbox count within: an id, and another one from each run on that found damage.
//!
//! ```text
//! 3f0c…                          the file: the first id,
//! 81ab… 1764000000000002 0…7.seg.damaged   then each later one, its first run, and the copies of damaged segments that it knows
//! ```
//!
//! # Invariants
//!
//! - Damage may have taken the last numbers that were given away. So a run that finds a copy of a damaged segment that is not
//!   known begins a new id, and with it all ports at 1: what was numbered before keeps its id, and is dropped nowhere for a number.
//! - The copy is there before the damage is cut off, so a crash between the two forgets nothing.

use std::io;
use std::path::Path;

use model::Entropy;
use uuid::Uuid;

use crate::spool::SpoolError;

/// The file with the ids.
const FILE: &str = "id";
/// How the copy of a damaged segment ends.
const DAMAGED: &str = ".damaged";

/// The ids of an outbox, each with the first run that it is for.
#[derive(Debug, Clone)]
pub(super) struct Ids {
    first: Uuid,
    later: Vec<(u64, Uuid)>,
}

impl Ids {
    /// Those of an outbox in a folder, for a run that begins.
    pub(super) fn open(dir: &Path, epoch: u64, entropy: &Entropy) -> Result<Self, SpoolError> {
        let path = dir.join(FILE);
        let at = |source| SpoolError::Io {
            path: path.clone(),
            source,
        };
        let new = || uuid::Builder::from_random_bytes(entropy.bytes()).into_uuid();
        let before = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(at(error)),
        };
        let mut text = before.clone();
        let damaged: Vec<String> = copies(dir).map_err(at)?;
        let news: Vec<&str> = damaged
            .iter()
            .map(String::as_str)
            .filter(|name| !before.contains(name))
            .collect();
        if text.is_empty() {
            text = format!("{}\n", new());
        }
        if !news.is_empty() {
            text = format!("{text}{} {epoch} {}\n", new(), news.join(" "));
            tracing::warn!(copies = ?news, "the outbox was damaged: its numbers begin anew, under an id of their own");
        }
        if text != before {
            chassis::files::write_atomic(&path, text.as_bytes(), 0o600)?;
        }
        Self::parse(&text).ok_or_else(|| {
            let reason = "not the ids of an outbox: remove it together with the folder's segments";
            at(io::Error::new(io::ErrorKind::InvalidData, reason))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let first = Uuid::try_parse(lines.next()?.trim()).ok()?;
        let later = lines.map(|line| {
            let mut words = line.split(' ');
            let id = Uuid::try_parse(words.next()?).ok()?;
            Some((words.next()?.parse().ok()?, id))
        });
        Some(Self {
            first,
            later: later.collect::<Option<_>>()?,
        })
    }

    /// That of a run.
    pub(super) fn of(&self, epoch: u64) -> Uuid {
        let mut later = self.later.iter().rev();
        later
            .find(|(first, _)| *first <= epoch)
            .map_or(self.first, |(_, id)| *id)
    }

    /// The name of a port's count in a run; the first id's has none of the id.
    pub(super) fn count(&self, epoch: u64, port: &str) -> String {
        let id = self.of(epoch);
        if id == self.first {
            format!("number {port}")
        } else {
            format!("number {port} {id}")
        }
    }
}

/// The names of the copies of damaged segments.
fn copies(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        names.extend(name.to_str().filter(|name| name.ends_with(DAMAGED)).map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}
