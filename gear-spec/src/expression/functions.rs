//! The language's surroundings: CEL's standard functions, and those of its strings extension that expressions on texts need.
//!
//! | function | gives |
//! |---|---|
//! | `text.matches(pattern)` | whether the pattern (RE2 syntax) is found |
//! | `text.lowerAscii()`, `upperAscii()`, `trim()` | a text |
//! | `text.replace(from, to)` | every occurrence replaced |
//! | `text.split(separator)`, `list.join(separator)` | a list of texts; a text |
//! | `text.substring(begin)`, `substring(begin, end)` | a part, counted in characters |
//! | `text.indexOf(part)` | the place of its first occurrence in characters, or -1 |
//!
//! # Invariants
//!
//! - What a function makes is paid for before it is made; that is why the extension of the library is not used.
//! - Patterns are compiled once for each thread, [`PATTERNS`] of them, each of [`PATTERN_SIZE`] at most.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelBool, CelInt, CelList, CelString, DYN_TYPE, INT_TYPE};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError, add_member_overload, add_overload};
use regex::Regex;

use super::budget::{pay, pay_for, pay_for_loop, text};

/// What pays for a value, and for a loop: names that no text of an expression can have.
pub(super) const PAY: &str = "@pay";
pub(super) const PAY_LOOP: &str = "@loop";
/// How many patterns are kept.
const PATTERNS: usize = 64;
/// The largest compiled pattern in bytes.
const PATTERN_SIZE: usize = 256 * 1024;
/// How many bytes of a bad pattern are quoted.
const QUOTED: usize = 60;
/// What compiling a pattern costs.
const COMPILING: u64 = 2_000;

type Texts<'a> = &'a CelString<'a>;

/// The surroundings, or why they cannot be had: two functions of one name, a defect.
pub(super) fn env() -> Result<Arc<Env>, String> {
    static ENV: LazyLock<Result<Arc<Env>, DeclarationError>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        declare(&mut env)?;
        Ok(Arc::new(env))
    });
    ENV.as_ref().map(Arc::clone).map_err(ToString::to_string)
}

fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(PAY, PAY, vec![DYN_TYPE], pay_for)?;
    env.add_overload(PAY_LOOP, PAY_LOOP, vec![DYN_TYPE, INT_TYPE], pay_for_loop)?;
    add_overload!(env, fn matches: (CelString, CelString) -> Result<CelBool>)?;
    add_member_overload!(env, fn matches: (CelString, CelString) -> Result<CelBool>)?;
    add_member_overload!(env, fn lower_ascii: (CelString) -> CelString)?;
    add_member_overload!(env, fn upper_ascii: (CelString) -> CelString)?;
    add_member_overload!(env, fn trim: (CelString) -> CelString)?;
    add_member_overload!(env, fn replace: (CelString, CelString, CelString) -> Result<CelString>)?;
    add_member_overload!(env, fn split: (CelString, CelString) -> Result<CelList>)?;
    add_member_overload!(env, fn join: (CelList, CelString) -> Result<CelString>)?;
    add_member_overload!(env, fn substring: (CelString, CelInt) -> Result<CelString>)?;
    add_member_overload!(env, fn part: (CelString, CelInt, CelInt) -> Result<CelString>, name = "substring")?;
    add_member_overload!(env, fn index_of: (CelString, CelString) -> CelInt)
}

/// A pattern, compiled.
pub(super) fn pattern(pattern: &str) -> Result<Regex, String> {
    let built = regex::RegexBuilder::new(pattern).size_limit(PATTERN_SIZE).build();
    built.map_err(|error| {
        let (said, begin) = (error.to_string(), pattern.floor_char_boundary(QUOTED));
        let reason = said.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("{:?} is not a pattern: {reason}", &pattern[..begin])
    })
}

fn matches(this: Texts<'_>, wanted: Texts<'_>) -> Result<CelBool, ExecutionError> {
    thread_local! {
        static KEPT: RefCell<HashMap<String, Regex>> = RefCell::default();
    }
    pay(text(this.len()).saturating_mul(text(wanted.len())))?;
    KEPT.with_borrow_mut(|kept| {
        if let Some(regex) = kept.get(wanted.inner()) {
            return Ok(regex.is_match(this.inner()).into());
        }
        pay(COMPILING)?;
        let regex = pattern(wanted.inner()).map_err(|error| ExecutionError::function_error("matches", error))?;
        let found = regex.is_match(this.inner());
        if kept.len() >= PATTERNS {
            kept.clear();
        }
        kept.insert(wanted.inner().to_owned(), regex);
        Ok(found.into())
    })
}

fn lower_ascii(this: Texts<'_>) -> CelString<'static> {
    this.to_ascii_lowercase().into()
}

fn upper_ascii(this: Texts<'_>) -> CelString<'static> {
    this.to_ascii_uppercase().into()
}

fn trim(this: Texts<'_>) -> CelString<'static> {
    this.inner().trim().to_owned().into()
}

fn replace(this: Texts<'_>, from: Texts<'_>, to: Texts<'_>) -> Result<CelString<'static>, ExecutionError> {
    let found = this.matches(from.inner()).count();
    pay(text(found.saturating_mul(to.len())))?;
    Ok(this.inner().replace(from.inner(), to.inner()).into())
}

fn split(this: Texts<'_>, separator: Texts<'_>) -> Result<CelList<'static>, ExecutionError> {
    let parts: Vec<&str> = if separator.is_empty() {
        pay(this.len() as u64)?;
        this.char_indices()
            .map(|(at, char)| &this[at..at + char.len_utf8()])
            .collect()
    } else {
        pay(this.matches(separator.inner()).count() as u64)?;
        this.inner().split(separator.inner()).collect()
    };
    let parts = parts
        .into_iter()
        .map(|part| Box::new(CelString::from(part.to_owned())) as Box<dyn Val>);
    Ok(CelList::from(parts.collect::<Vec<_>>()))
}

fn join(this: &CelList<'_>, separator: Texts<'_>) -> Result<CelString<'static>, ExecutionError> {
    pay(text(this.inner().len().saturating_mul(separator.len())))?;
    let mut joined = String::new();
    for (index, item) in this.inner().iter().enumerate() {
        let Some(part) = item.downcast_ref::<CelString<'_>>() else {
            let why = format!(
                "item {index} is of type {}; join takes texts, use string()",
                item.get_type().name()
            );
            return Err(ExecutionError::function_error("join", why));
        };
        if index > 0 {
            joined.push_str(separator.inner());
        }
        joined.push_str(part.inner());
    }
    Ok(joined.into())
}

fn substring(this: Texts<'_>, begin: &CelInt) -> Result<CelString<'static>, ExecutionError> {
    let begin = place(this, *begin.inner())?;
    Ok(this[begin..].to_owned().into())
}

fn part(this: Texts<'_>, begin: &CelInt, end: &CelInt) -> Result<CelString<'static>, ExecutionError> {
    let (begin, end) = (place(this, *begin.inner())?, place(this, *end.inner())?);
    let part = this.get(begin..end);
    let part = part.ok_or_else(|| ExecutionError::function_error("substring", "the end is before the begin"))?;
    Ok(part.to_owned().into())
}

/// The byte where a character begins; the text's end is a place too.
fn place(text: &str, character: i64) -> Result<usize, ExecutionError> {
    let places = || text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let found = usize::try_from(character)
        .ok()
        .and_then(|character| places().nth(character));
    found.ok_or_else(|| {
        let why = format!(
            "there is no position {character} in a text of {} characters",
            text.chars().count()
        );
        ExecutionError::function_error("substring", why)
    })
}

fn index_of(this: Texts<'_>, wanted: Texts<'_>) -> CelInt {
    let characters = |at: usize| i64::try_from(this[..at].chars().count()).unwrap_or(i64::MAX);
    this.find(wanted.inner()).map_or(-1, characters).into()
}
