//! Expressions over messages, in CEL (ADR 25): compiled when a configuration is checked and when a gear is built, evaluated for each message.
//!
//! | variable | what |
//! |---|---|
//! | `data` | the body as a value; where there is none, `text` |
//! | `text` | the body as text; null where it is not UTF-8 |
//! | `meta` | the facts: `meta['content_type']` |
//! | `hops` | how many gears have sent the message |
//! | `ts` | when it was made, a timestamp |
//! | `flux_id` | the business signal, text |
//!
//! # Invariants
//!
//! - Nothing that an expression or a message says ends the program: the text is at most 16 KiB and is read on a stack
//!   of its own, nesting is bounded (`static_check`), so is the work (`budget`), and a panic of the library is an error.
//! - An expression sees nothing but its message: no clock, no files, nothing of messages before.
//!
//! # Not here
//!
//! What gears do with the results, and with a message that an expression rejects.

mod budget;
mod functions;
mod message_key;
mod static_check;
#[cfg(test)]
mod tests;
mod value_conversion;

use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use cel::Context;
use cel::common::ast::{IdedExpr, SourceInfo};
use cel::common::types::{CelInt, CelNull, CelString, CelTimestamp};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use model::message::Message;
use model::panic_text;
use serde_json::Value;

use static_check::{CelCheckError, CelChecker};

pub use message_key::{compile_if_any, key_or_one};

/// The longest expression in bytes.
const MAX_TEXT: usize = 16 * 1024;
/// The stack on which expressions are read: the parser calls itself for every operator of the longest one.
const STACK: usize = 64 * 1024 * 1024;
/// The longest reason in bytes; a reason can quote the message.
const MAX_REASON: usize = 300;
/// The variables of an expression.
const NAMES: &[&str] = &["data", "text", "meta", "hops", "ts", "flux_id"];

/// Why an expression has no value for a message, which is rejected therefore. It begins with the key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExpressionError(String);

impl From<ExpressionError> for String {
    fn from(error: ExpressionError) -> Self {
        error.0
    }
}

/// An expression that can be evaluated.
#[derive(Debug)]
pub struct CelExpression {
    key: String,
    root: IdedExpr,
}

impl CelExpression {
    /// Reads the expression that the configuration has under `key`. The error names the key and the place.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn compile(key: &str, text: &str) -> Result<Self, String> {
        let wrong = |reason: String| format!("{key}: {reason}");
        if text.len() > MAX_TEXT {
            return Err(wrong(format!(
                "{} bytes; an expression has at most {MAX_TEXT}",
                text.len()
            )));
        }
        let read = std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name("expression".into()).stack_size(STACK);
            let reader = reader
                .spawn_scoped(scope, || read(text))
                .map_err(|error| error.to_string())?;
            reader
                .join()
                .unwrap_or_else(|panic| Err(format!("it cannot be read: {}", panic_text(panic.as_ref()))))
        });
        Ok(Self {
            key: key.to_owned(),
            root: read.map_err(wrong)?,
        })
    }

    /// The value for a message; what has no value rejects the message.
    ///
    /// # Errors
    /// [`ExpressionError`] where it fails on the message, costs too much, or its result has no form in JSON.
    pub fn value(&self, scope: &MessageVariables<'_>) -> Result<Value, ExpressionError> {
        self.evaluate(scope, |value| value_conversion::to_json(value, 1))
    }

    /// Whether it is true for a message.
    ///
    /// # Errors
    /// [`ExpressionError`] where it fails on the message, costs too much, or its result is no bool.
    pub fn is_true(&self, scope: &MessageVariables<'_>) -> Result<bool, ExpressionError> {
        self.evaluate(scope, |value| match value {
            cel::Value::Bool(value) => Ok(*value),
            other => Err(format!("the result is of type {}, not bool", other.type_of())),
        })
    }

    fn evaluate<T>(
        &self,
        scope: &MessageVariables<'_>,
        take: impl Fn(&cel::Value) -> Result<T, String>,
    ) -> Result<T, ExpressionError> {
        let evaluated = functions::env().and_then(|env| {
            let run = || {
                let mut cx = Context::with_env(env);
                cx.set_variable_resolver(scope);
                let value = cel::Value::resolve(&self.root, &cx).map_err(short)?;
                take(&value)
            };
            budget::with_budget(|| {
                catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(short(panic_text(panic.as_ref()))))
            })?
        });
        evaluated.map_err(|reason| ExpressionError(format!("{}: {reason}", self.key)))
    }
}

fn read(text: &str) -> Result<IdedExpr, String> {
    let env = functions::env()?;
    let parser = env.parser().enable_optional_syntax(false);
    let (mut root, source) = parser.parse_with_source_info(text).map_err(|errors| first(&errors))?;
    let cx = Context::with_env(env);
    let names = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let mut shaper = CelChecker { cx: &cx, names };
    match budget::with_budget(|| shaper.check_and_instrument(&mut root, 1))? {
        Ok(_) => Ok(root),
        Err(CelCheckError { part, reason }) => Err(format!("{}{reason}", place(&source, part))),
    }
}

/// `at 2:7: `, where the place of a part is known.
fn place(source: &SourceInfo, part: u64) -> String {
    let Some((start, _)) = source.offset_for(part) else {
        return String::new();
    };
    let before: String = source.source.chars().take(start as usize).collect();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|char| *char != '\n').count() + 1;
    format!("at {line}:{column}: ")
}

/// The first of the errors; the others follow from it.
fn first(errors: &cel::ParseErrors) -> String {
    let Some(error) = errors.errors.first() else {
        return "it cannot be read".to_owned();
    };
    let said = short(&error.msg);
    let said = said.strip_prefix("Syntax error: ").unwrap_or(&said);
    let said = if said.contains("Recursion limit") {
        "it is nested too deeply"
    } else {
        said
    };
    format!("at {}:{}: {said}", error.pos.0, error.pos.1)
}

/// A reason on one line, cut where it is long.
fn short(reason: impl fmt::Display) -> String {
    struct TruncatingWriter(String);
    impl Write for TruncatingWriter {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = MAX_REASON.saturating_sub(self.0.len());
            self.0.push_str(&text[..text.floor_char_boundary(room)]);
            if text.len() > room { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut cut = TruncatingWriter(String::new());
    if write!(cut, "{reason}").is_err() {
        cut.0.push('…');
    }
    cut.0.replace('\n', " ")
}

/// A message's variables. What is costly to make is made when it is first asked for.
#[derive(Debug)]
pub struct MessageVariables<'m> {
    message: &'m Message,
    data: OnceLock<Box<dyn Val + 'm>>,
    meta: OnceLock<Box<dyn Val + 'm>>,
}

impl<'m> MessageVariables<'m> {
    /// Those of this message.
    #[must_use]
    pub const fn of(message: &'m Message) -> Self {
        Self {
            message,
            data: OnceLock::new(),
            meta: OnceLock::new(),
        }
    }

    fn text(&self) -> Box<dyn Val + 'm> {
        match std::str::from_utf8(&self.message.raw) {
            Ok(text) => Box::new(CelString::from(text)),
            Err(_) => Box::new(CelNull),
        }
    }

    fn data(&self) -> Box<dyn Val + 'm> {
        if self.message.data.is_null() {
            self.text()
        } else {
            value_conversion::from_json(&self.message.data)
        }
    }
}

impl VariableResolver for MessageVariables<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        let message = self.message;
        Some(match name {
            "data" => CowVal::Borrowed(self.data.get_or_init(|| self.data()).as_ref()),
            "text" => CowVal::Owned(self.text()),
            "meta" => CowVal::Borrowed(
                self.meta
                    .get_or_init(|| value_conversion::from_map(message.meta.as_map()))
                    .as_ref(),
            ),
            "hops" => CowVal::owned(CelInt::from(i64::from(message.hops))),
            "ts" => CowVal::owned(CelTimestamp::from(message.ts.to_datetime()?.fixed_offset())),
            "flux_id" => CowVal::owned(CelString::from(message.flux_id.to_string())),
            _ => return None,
        })
    }
}
