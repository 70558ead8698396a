//! A reader of server-sent events, as a program of somebody else would read them.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use serde_json::Value;

use crate::{Api, Failure};

/// An open stream.
pub struct Tail {
    reader: BufReader<Box<dyn Read + Send>>,
}

/// One event.
#[derive(Debug, Clone, Default)]
pub struct Event {
    /// Empty for a row.
    pub name: String,
    /// Where to go on after it.
    pub id: Option<String>,
    /// `Null` if it only carries an id.
    pub data: Value,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail").finish_non_exhaustive()
    }
}

impl Tail {
    /// Follows the logs; `query` is what comes behind the path, `last` the id of the last event that was read.
    ///
    /// # Errors
    /// If the answer is not 200; silence of half a minute ends the stream.
    pub fn open(api: &Api, query: &str, last: Option<&str>) -> Result<Self, Failure> {
        Self::at(api, &format!("/api/v1/telemetry/logs/tail{query}"), last)
    }

    /// The same of another path.
    ///
    /// # Errors
    /// If the answer is not 200; silence of half a minute ends the stream.
    pub fn at(api: &Api, path: &str, last: Option<&str>) -> Result<Self, Failure> {
        let config = ureq::Agent::config_builder().timeout_per_read(Some(Duration::from_secs(30)));
        let agent: ureq::Agent = config.build().into();
        let mut request = agent.get(format!("{}{path}", api.base));
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let body = request.call()?.into_body();
        let reader: Box<dyn Read + Send> = Box::new(body.into_with_config().limit(u64::MAX).reader());
        Ok(Self {
            reader: BufReader::new(reader),
        })
    }

    /// The stream itself, for whoever reads its lines.
    #[must_use]
    pub fn into_reader(self) -> impl BufRead + Send {
        self.reader
    }

    /// The next event.
    ///
    /// # Errors
    /// If the stream ends or breaks off.
    pub fn next_event(&mut self) -> Result<Event, Failure> {
        let mut event = Event::default();
        let mut line = String::new();
        loop {
            line.clear();
            if self.reader.read_line(&mut line)? == 0 {
                return Err("the stream has ended".into());
            }
            match line.trim_end_matches('\n').split_once(": ") {
                None if line == "\n" => return Ok(event),
                Some(("event", name)) => name.clone_into(&mut event.name),
                Some(("id", id)) => event.id = Some(id.to_owned()),
                Some(("data", data)) => event.data = serde_json::from_str(data)?,
                _ => {}
            }
        }
    }
}
