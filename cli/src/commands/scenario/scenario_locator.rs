//! Resolves a scenario argument: a file, or a scenario stored at the Mixer.

use std::path::{Path, PathBuf};

use model::Token;
use model::scenario::{BadScenario, ScenarioReview, ScenarioVersion, review, review_within};
use serde_json::Value;

use crate::args::ApiArgs;
use crate::client::ApiClient;
use crate::error::Error;

/// A scenario that is not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScenarioLocator {
    File(PathBuf),
    /// `name:version`, `name:latest`, `name`, the beginning of a hash.
    Stored(String),
}

impl ScenarioLocator {
    /// What a word on the command line means: a file that is there or looks like one, else a reference.
    pub(super) fn of(word: &str) -> Result<Self, Error> {
        let path = PathBuf::from(word);
        let ends_as_file = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        if path.is_file() || word.contains('/') || ends_as_file {
            return Ok(Self::File(path));
        }
        self::path(word, "").map(|_| Self::Stored(word.to_owned()))
    }

    /// The scenario.
    pub(super) fn read(&self, api: &ApiArgs) -> Result<ScenarioReview, Error> {
        self.review(&self.text(api)?)
    }

    /// The same of a file, for a Mixer with this limit.
    pub(super) fn read_within(&self, max_hops: u32) -> Result<ScenarioReview, Error> {
        match self {
            Self::File(path) => self.reviewed(review_within(&file(path)?, gear_spec::manifests(), max_hops)),
            Self::Stored(reference) => Err(Error::Usage(format!("{reference} is not a file"))),
        }
    }

    pub(super) fn text(&self, api: &ApiArgs) -> Result<String, Error> {
        match self {
            Self::File(path) => file(path),
            Self::Stored(reference) => {
                let answer = ApiClient::new(api).get(&path(reference, "")?, &())?;
                let text = answer.pointer("/data/text").and_then(Value::as_str);
                text.map(str::to_owned)
                    .ok_or_else(|| Error::Answer("it has no scenario".to_owned()))
            }
        }
    }

    pub(super) fn review(&self, text: &str) -> Result<ScenarioReview, Error> {
        self.reviewed(review(text, gear_spec::manifests()))
    }

    fn reviewed(&self, done: Result<ScenarioReview, BadScenario>) -> Result<ScenarioReview, Error> {
        let origin = match self {
            Self::File(path) => path.display().to_string(),
            Self::Stored(reference) => reference.clone(),
        };
        done.map_err(|BadScenario(faults)| Error::Scenario { origin, faults })
    }
}

pub(super) fn file(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

/// A stored scenario's path. A reference has no character that must be escaped.
pub(super) fn path(reference: &str, verb: &str) -> Result<String, Error> {
    let (name, version) = reference
        .split_once(':')
        .map_or((reference, None), |(name, version)| (name, Some(version)));
    if name.parse::<Token>().is_err() || version.is_some_and(|version| version.parse::<ScenarioVersion>().is_err()) {
        let reason =
            format!("{reference:?} is neither a file nor a reference: name:version, name:latest, name, or a hash");
        return Err(Error::Usage(reason));
    }
    Ok(format!("/api/v1/scenarios/{reference}{verb}"))
}
