//! The API tokens in force: those of the registry, made and revoked while the Mixer runs, and those of `api.tokens_file`.
//!
//! # Invariants
//!
//! - A token is in the registry before its secret is given out; it opens nothing once its revocation returns. Streams that its caller follows end
//!   then, those of one that expires within [`FILE_LOOKED_AT`].
//! - Names are unique over both kinds. A token of the file whose name or secret the registry has is left out, and the log says so.
//! - The time of its last use, and what was stored with it today, are kept in memory and written once a minute and at the end: a crash loses a
//!   minute of them, and no request waits for them.
//!
//! Not here: texts of tokens (`access`), HTTP (`api::tokens`).

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chassis::file_stamp::FileStamp;
use model::lifecycle_event::LifecycleEvent;
use model::{Clock, Entropy, Timestamp, Token};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use super::AuthenticationError;
use super::token_entry::{NEVER, TokenEntry, TokenView};
use super::token_file::{self, ProvidedToken, TokenFileError};
use crate::access::{AccessRight, AccessRole, AccessScope, ApiCaller, ApiToken, ScramVerifier, TokenDigest, role_list};
use crate::quotas::{DayTotal, QuotaOverrides, QuotaPolicy};
use crate::registry::{AuditActor, AuditEntry, ClusterRegistry, RegistryError, TokenRow};

/// So many tokens there may be.
const MOST_TOKENS: usize = 10_000;
/// A token that has expired is forgotten when another one is made so much later.
const REMEMBERED: Duration = Duration::from_secs(30 * 86_400);
/// How often uses are written and the file is looked at.
const USES_WRITTEN: Duration = Duration::from_secs(60);
const FILE_LOOKED_AT: Duration = Duration::from_secs(5);

/// Why a token cannot be made or revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// A token has the name.
    #[error("there is a token {0} already: choose another name, or revoke that one first")]
    NameTaken(Token),
    /// No token has the name.
    #[error("there is no token {0:?}: `platform token list` shows names and ids")]
    UnknownToken(String),
    /// It is of the file.
    #[error("the token {0} comes from api.tokens_file: take it out of that file")]
    Provided(Token),
    /// It cannot be made so.
    #[error("{0}")]
    BadToken(String),
    /// There are too many.
    #[error("there are {MOST_TOKENS} tokens, as many as there may be: revoke some")]
    TooMany,
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// A token that is to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewToken {
    pub(crate) name: Token,
    pub(crate) roles: Vec<AccessRole>,
    pub(crate) scope: AccessScope,
    /// How long it opens anything; for ever if there is none.
    pub(crate) lifetime: Option<Duration>,
    pub(crate) quotas: QuotaOverrides,
}

/// Why tokens cannot be read at a start.
#[derive(Debug, thiserror::Error)]
pub enum TokenStoreError {
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] TokenFileError),
}

type TokenTable = HashMap<TokenDigest, Arc<TokenEntry>>;

/// The tokens in force.
pub(crate) struct TokenStore {
    registry: Arc<ClusterRegistry>,
    clock: Clock,
    entropy: Entropy,
    quotas: Arc<QuotaPolicy>,
    file: Option<PathBuf>,
    /// What was stored with tokens when that was written last.
    stored: Mutex<HashMap<TokenDigest, DayTotal>>,
    /// The file as it was when it was last read whole.
    seen: Mutex<Option<FileStamp>>,
    tokens: RwLock<TokenTable>,
    /// Those of the file that are not in force, because another has their name or their secret.
    left_out: Mutex<BTreeSet<TokenDigest>>,
    /// Held over a change, so that two do not take one name.
    changing: tokio::sync::Mutex<()>,
    /// Verifiers of names that nobody has are made of it.
    unknown: [u8; 32],
}

impl std::fmt::Debug for TokenStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenStore")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl TokenStore {
    /// Reads the tokens of the registry, and those of the file if there is one.
    ///
    /// # Errors
    /// [`TokenStoreError`].
    pub(crate) fn open(
        registry: Arc<ClusterRegistry>,
        file: Option<PathBuf>,
        quotas: Arc<QuotaPolicy>,
        (clock, entropy): (Clock, Entropy),
    ) -> Result<Self, TokenStoreError> {
        let rows = registry.tokens()?.into_iter();
        let tokens = rows.map(|(digest, row, used)| (digest, Arc::new(TokenEntry::new(digest, row, used, &quotas))));
        let store = Self {
            tokens: RwLock::new(tokens.collect()),
            stored: Mutex::new(registry.stored_by_tokens()?.into_iter().collect()),
            quotas,
            unknown: entropy.bytes(),
            seen: Mutex::default(),
            left_out: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            registry,
            clock,
            entropy,
            file,
        };
        if let Some(path) = &store.file {
            let stamp = FileStamp::of(path);
            store.replace_provided(token_file::read(path)?);
            *store.seen.lock() = stamp;
        }
        for (digest, entry) in store.tokens.read().iter() {
            if let Some(total) = store.stored.lock().get(digest) {
                entry.usage.resume(*total);
            }
        }
        Ok(store)
    }

    /// Puts the tokens of the file in the place of those that it had before.
    fn replace_provided(&self, provided: Vec<ProvidedToken>) {
        let provided: Vec<_> = provided
            .into_iter()
            .map(|row| {
                (
                    row.token.digest(),
                    TokenEntry::provided(row, &self.entropy, &self.quotas),
                )
            })
            .collect();
        let mut tokens = self.tokens.write();
        let before: TokenTable = tokens.extract_if(|_, entry| entry.is_provided).collect();
        let mut left_out = BTreeSet::new();
        for (digest, mut entry) in provided {
            if tokens.contains_key(&digest) || tokens.values().any(|other| other.name == entry.name) {
                tracing::warn!(token = %entry.name, "a token of api.tokens_file is left out: another has its name or its secret");
                left_out.insert(digest);
                continue;
            }
            if let Some(former) = before.get(&digest) {
                entry.last_used = AtomicI64::new(former.last_used.load(Ordering::Relaxed));
                entry.usage.resume(former.usage.stored_today());
                if former.is_same(&entry) {
                    // Who follows a stream with it goes on.
                    entry.caller = Arc::clone(&former.caller);
                    entry.usage = Arc::clone(&former.usage);
                }
            }
            tokens.insert(digest, Arc::new(entry));
        }
        *self.left_out.lock() = left_out;
        for (digest, former) in before {
            let goes_on = tokens
                .get(&digest)
                .is_some_and(|now| Arc::ptr_eq(&now.caller, &former.caller));
            if !goes_on {
                former.caller.revoked.cancel();
            }
        }
    }

    /// Whether the token of a digest is in force and gives a right.
    pub(crate) fn has_right(&self, digest: TokenDigest, right: AccessRight) -> bool {
        let now = self.clock.now();
        let tokens = self.tokens.read();
        let entry = tokens.get(&digest);
        entry.is_some_and(|entry| entry.expires.is_none_or(|at| now < at) && entry.caller.has(right))
    }

    /// Who has the token.
    ///
    /// # Errors
    /// [`AuthenticationError`] if it opens nothing.
    pub(crate) fn authenticate(&self, digest: TokenDigest) -> Result<Arc<ApiCaller>, AuthenticationError> {
        let entry = self.tokens.read().get(&digest).cloned();
        let entry = entry.ok_or(AuthenticationError::Unknown)?;
        let now = self.clock.now();
        if let Some(at) = entry.expires.filter(|at| now >= *at) {
            return Err(AuthenticationError::Expired {
                name: entry.name.clone(),
                at,
            });
        }
        entry.last_used.store(now.micros(), Ordering::Relaxed);
        Ok(Arc::clone(&entry.caller))
    }

    /// What proofs of a token's name are checked with, and the token if there is one.
    pub(crate) fn scram(&self, name: &str) -> (ScramVerifier, Option<TokenDigest>) {
        let tokens = self.tokens.read();
        let found = tokens.iter().find(|(_, entry)| entry.name.as_str() == name);
        match found {
            Some((digest, entry)) => (entry.scram.clone(), Some(*digest)),
            None => (ScramVerifier::unknown(name, &self.unknown), None),
        }
    }

    /// What callers may take.
    pub(crate) const fn quotas(&self) -> &Arc<QuotaPolicy> {
        &self.quotas
    }

    /// Random bytes, for who checks proofs.
    pub(crate) const fn entropy(&self) -> &Entropy {
        &self.entropy
    }

    /// Every token, by name.
    pub(crate) fn list(&self) -> Vec<TokenView> {
        let tokens = self.tokens.read();
        let mut views: Vec<_> = tokens.iter().map(|(digest, entry)| entry.view(*digest)).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    /// Makes a token; its secret is never shown again.
    ///
    /// # Errors
    /// [`TokenError`].
    pub(crate) async fn create(&self, new: NewToken, by: &AuditActor) -> Result<(ApiToken, TokenView), TokenError> {
        let now = self.clock.now();
        check(&new)?;
        let _changing = self.changing.lock().await;
        let gone = self.long_expired(now);
        self.check_room(&new.name, &gone)?;
        let token = ApiToken::generate(&self.entropy);
        let digest = token.digest();
        let row = TokenRow {
            name: new.name,
            roles: new.roles,
            scope: new.scope,
            created: now,
            created_by: by.to_string(),
            expires: new.lifetime.map(|lifetime| now.plus(lifetime)),
            scram: ScramVerifier::new(&token, &self.entropy),
            quotas: new.quotas,
        };
        let why = format!("token {} {}, {}", row.name, digest.id(), role_list(&row.roles));
        let told = AuditEntry::new(LifecycleEvent::TokenCreated, by, now).because(why);
        let (kept, forgotten) = (row.clone(), gone.clone());
        let written = self.registry.commit(move |change| {
            forgotten
                .into_iter()
                .try_for_each(|digest| change.remove_token(digest))?;
            change.put_token(digest, &kept)?;
            change.record(told)
        });
        written.await?;
        self.tokens.write().retain(|digest, _| !gone.contains(digest));
        let entry = TokenEntry::new(digest, row, None, &self.quotas);
        let view = entry.view(digest);
        self.tokens.write().insert(digest, Arc::new(entry));
        Ok((token, view))
    }

    /// Those that expired so long ago that nobody asks for them any more.
    fn long_expired(&self, now: Timestamp) -> BTreeSet<TokenDigest> {
        let tokens = self.tokens.read();
        let is_gone =
            |entry: &TokenEntry| !entry.is_provided && entry.expires.is_some_and(|at| now.since(at) > REMEMBERED);
        let gone = tokens.iter().filter(|(_, entry)| is_gone(entry));
        // Of one that the file has, too, the file's would come into force.
        let left_out = self.left_out.lock();
        let gone = gone.filter(|(digest, _)| !left_out.contains(digest));
        gone.map(|(digest, _)| *digest).collect()
    }

    /// Whether there is room for a token of this name, once those are gone.
    fn check_room(&self, name: &Token, gone: &BTreeSet<TokenDigest>) -> Result<(), TokenError> {
        let tokens = self.tokens.read();
        let mut left = tokens.iter().filter(|(digest, _)| !gone.contains(digest));
        if tokens.len() - gone.len() >= MOST_TOKENS {
            return Err(TokenError::TooMany);
        }
        match left.any(|(_, entry)| entry.name == *name) {
            true => Err(TokenError::NameTaken(name.clone())),
            false => Ok(()),
        }
    }

    /// Revokes a token, by name or id: it opens nothing when this returns.
    ///
    /// # Errors
    /// [`TokenError`].
    pub(crate) async fn revoke(&self, name: &str, by: &AuditActor) -> Result<TokenView, TokenError> {
        let _changing = self.changing.lock().await;
        let found = {
            let tokens = self.tokens.read();
            let is_meant =
                |digest: &TokenDigest, entry: &TokenEntry| entry.name.as_str() == name || digest.id() == name;
            let found = tokens.iter().find(|(digest, entry)| is_meant(digest, entry));
            found.map(|(digest, entry)| (*digest, Arc::clone(entry)))
        };
        let (digest, entry) = found.ok_or_else(|| TokenError::UnknownToken(name.to_owned()))?;
        // The same secret would come into force by the file.
        if entry.is_provided || self.left_out.lock().contains(&digest) {
            return Err(TokenError::Provided(entry.name.clone()));
        }
        let why = format!("token {} {}", entry.name, digest.id());
        let told = AuditEntry::new(LifecycleEvent::TokenRevoked, by, self.clock.now()).because(why);
        let written = self.registry.commit(move |change| {
            change.remove_token(digest)?;
            change.record(told)
        });
        written.await?;
        self.tokens.write().remove(&digest);
        entry.caller.revoked.cancel();
        Ok(entry.view(digest))
    }

    /// Writes when tokens were used, and reads the file again when it has changed, until the stop.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut written, mut failed) = (HashMap::new(), None);
        let mut looks = 0_u64;
        let looks_per_write = USES_WRITTEN.as_secs() / FILE_LOOKED_AT.as_secs();
        loop {
            let stopped = tokio::time::timeout(FILE_LOOKED_AT, stop.cancelled()).await.is_ok();
            looks += 1;
            if stopped || looks.is_multiple_of(looks_per_write) {
                self.write_uses(&mut written).await;
                self.write_stored().await;
            }
            if stopped {
                return;
            }
            self.end_expired();
            if let Some(path) = &self.file {
                let _changing = self.changing.lock().await;
                self.read_file(path, &mut failed);
            }
        }
    }

    /// Ends what callers with tokens that have expired still follow.
    fn end_expired(&self) {
        let now = self.clock.now();
        let tokens = self.tokens.read();
        for entry in tokens
            .values()
            .filter(|entry| entry.expires.is_some_and(|at| now >= at))
        {
            entry.caller.revoked.cancel();
        }
    }

    /// Reads the file if it is another than the one that was read last. One that cannot be read is tried again each time, and told of once.
    pub(super) fn read_file(&self, path: &Path, failed: &mut Option<String>) {
        let stamp = FileStamp::of(path);
        if stamp.is_some() && stamp == *self.seen.lock() {
            return;
        }
        match token_file::read(path) {
            Ok(provided) => {
                tracing::info!(path = %path.display(), tokens = provided.len(), "read api.tokens_file again");
                self.replace_provided(provided);
                *self.seen.lock() = stamp;
                *failed = None;
            }
            Err(error) => {
                let reason = error.to_string();
                if failed.as_ref() != Some(&reason) {
                    tracing::error!(%error, "the tokens of before stay in force");
                    *failed = Some(reason);
                }
            }
        }
    }

    async fn write_uses(&self, written: &mut HashMap<TokenDigest, i64>) {
        let now: HashMap<TokenDigest, i64> = {
            let tokens = self.tokens.read();
            let made = tokens.iter().filter(|(_, entry)| !entry.is_provided);
            let used = made.map(|(digest, entry)| (*digest, entry.last_used.load(Ordering::Relaxed)));
            used.filter(|(_, used)| *used != NEVER).collect()
        };
        let changed: Vec<_> = now
            .iter()
            .filter(|(digest, used)| written.get(*digest) != Some(*used))
            .collect();
        let changed: Vec<_> = changed.into_iter().map(|(digest, used)| (*digest, *used)).collect();
        if changed.is_empty() {
            return;
        }
        let done = self.registry.commit(move |change| {
            let mut uses = changed.into_iter();
            uses.try_for_each(|(digest, used)| change.set_token_use(digest, Timestamp::from_micros(used)))
        });
        match done.await {
            Ok::<(), RegistryError>(()) => *written = now,
            Err(error) => tracing::warn!(%error, "could not write when tokens were used"),
        }
    }
}

impl TokenStore {
    /// Writes what was stored with tokens today, if that has changed.
    async fn write_stored(&self) {
        let (today, _) = self.quotas.today();
        let now: HashMap<TokenDigest, DayTotal> = {
            let tokens = self.tokens.read();
            let totals = tokens
                .iter()
                .map(|(digest, entry)| (*digest, entry.usage.stored_today()));
            totals.filter(|(_, total)| total.bytes > 0).collect()
        };
        if *self.stored.lock() == now {
            return;
        }
        let totals: Vec<_> = now.iter().map(|(digest, total)| (*digest, *total)).collect();
        let done = self
            .registry
            .commit(move |change| change.set_stored_by_tokens(&totals, today));
        match done.await {
            Ok::<(), RegistryError>(()) => *self.stored.lock() = now,
            Err(error) => tracing::warn!(%error, "could not write what was stored with tokens"),
        }
    }
}

/// A name in the form of an id would be taken for that of another token.
pub(super) fn check_name(name: &Token) -> Result<(), String> {
    let is_id = name.as_str().len() == 12 && name.as_str().bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_id {
        true => Err(format!(
            "name: {name} has the form of a token's id, 12 hexadecimal digits"
        )),
        false => Ok(()),
    }
}

fn check(new: &NewToken) -> Result<(), TokenError> {
    if new.roles.is_empty() {
        let known: Vec<_> = AccessRole::ALL.iter().map(|role| role.as_str()).collect();
        return Err(TokenError::BadToken(format!(
            "roles: at least one of {}",
            known.join(", ")
        )));
    }
    let checked = check_name(&new.name).and_then(|()| new.scope.check());
    checked.and_then(|()| new.quotas.check()).map_err(TokenError::BadToken)
}
