//! What an expression may look like, checked before it runs, and the payments that bound it ([`super::budget`]) put into it.
//!
//! # Invariants
//!
//! - Names that are not there, patterns that are none and nesting beyond [`MAX_NESTING`] are found here, not at the first message.
//! - What the interpreter recognises by its form keeps it: the steps that build the list of `map` and `filter`.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, operators,
};
use cel::{Context, ExecutionError, Value};

use super::budget;
use super::functions::{PAY, PAY_LOOP, pattern};

/// The deepest nesting of an expression. The interpreter calls itself for each level.
pub(super) const MAX_NESTING: usize = 64;

/// The names that stand for a type.
const TYPES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
];

/// What is wrong, and with which part.
pub(super) struct CelCheckError {
    pub(super) part: u64,
    pub(super) reason: String,
}

/// A walk over an expression.
pub(super) struct CelChecker<'a> {
    /// The surroundings, to ask which functions there are.
    pub(super) cx: &'a Context<'a, 'a>,
    /// The variables in scope.
    pub(super) names: Vec<String>,
}

impl CelChecker<'_> {
    /// Checks an expression, puts the payments into it and gives its size.
    pub(super) fn check_and_instrument(&mut self, expr: &mut IdedExpr, depth: usize) -> Result<u64, CelCheckError> {
        let part = expr.id;
        let bad = |reason: String| CelCheckError { part, reason };
        if depth > MAX_NESTING {
            return Err(bad(format!("it is nested more than {MAX_NESTING} deep")));
        }
        Ok(1 + match &mut expr.expr {
            Expr::Unspecified => return Err(bad("it is not complete".into())),
            Expr::Literal(literal) => literal_size(literal),
            Expr::Ident(name) => {
                if !self.names.contains(name) && !TYPES.contains(&name.as_str()) {
                    let known: Vec<_> = self
                        .names
                        .iter()
                        .filter(|name| !name.starts_with('@'))
                        .cloned()
                        .collect();
                    return Err(bad(format!(
                        "there is no variable {name}; there are {}",
                        known.join(", ")
                    )));
                }
                0
            }
            Expr::Select(select) => self.check_and_instrument(&mut select.operand, depth + 1)?,
            Expr::List(list) => self.paid(&mut list.elements, depth)?,
            Expr::Map(map) => self.entries(&mut map.entries, depth)?,
            Expr::Struct(_) => {
                return Err(bad(
                    "there are no types of that kind; write a map, {\"key\": value}".into()
                ));
            }
            Expr::Call(call) => self.call(part, call, depth)?,
            Expr::Comprehension(turns) => self.comprehension(turns, depth)?,
        })
    }

    fn paid(&mut self, parts: &mut [IdedExpr], depth: usize) -> Result<u64, CelCheckError> {
        let mut size = 0;
        for part in parts {
            size += self.check_and_instrument(part, depth + 1)?;
            put_payment(part);
        }
        Ok(size)
    }

    fn entries(&mut self, entries: &mut [IdedEntryExpr], depth: usize) -> Result<u64, CelCheckError> {
        let mut size = 0;
        for entry in entries {
            let EntryExpr::MapEntry(map_entry) = &mut entry.expr else {
                let reason = "an entry needs a key and a value".to_owned();
                return Err(CelCheckError { part: entry.id, reason });
            };
            size += self.paid(std::slice::from_mut(&mut map_entry.key), depth)?;
            size += self.paid(std::slice::from_mut(&mut map_entry.value), depth)?;
        }
        Ok(size)
    }

    fn call(&mut self, part: u64, call: &mut CallExpr, depth: usize) -> Result<u64, CelCheckError> {
        self.exists(part, call)?;
        if let ("matches", Some(LiteralValue::String(text))) =
            (call.func_name.as_str(), call.args.last().and_then(literal))
        {
            pattern(text.inner()).map_err(|reason| CelCheckError { part, reason })?;
        }
        let free = matches!(
            call.func_name.as_str(),
            operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::CONDITIONAL
                | operators::INDEX
                | operators::NOT_STRICTLY_FALSE
        );
        let mut size = 0;
        for argument in call.args.iter_mut().chain(call.target.as_deref_mut()) {
            size += self.check_and_instrument(argument, depth + 1)?;
            if !free {
                put_payment(argument);
            }
        }
        Ok(size)
    }

    /// Whether there is a function of the name: called without arguments, one that is there misses them.
    fn exists(&self, part: u64, call: &CallExpr) -> Result<(), CelCheckError> {
        let name = &call.func_name;
        if !name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_') || name.contains("_?") {
            return Ok(());
        }
        let target = call
            .target
            .as_ref()
            .map(|_| Box::new(node(Expr::Literal(LiteralValue::Null))));
        let bare = node(Expr::Call(CallExpr {
            func_name: name.clone(),
            target,
            args: Vec::new(),
        }));
        match Value::resolve(&bare, self.cx) {
            Err(ExecutionError::UndeclaredReference(_)) => Err(CelCheckError {
                part,
                reason: format!("there is no function {name}"),
            }),
            _ => Ok(()),
        }
    }

    /// A loop: `all`, `exists`, `exists_one`, `map` or `filter`.
    fn comprehension(&mut self, turns: &mut ComprehensionExpr, depth: usize) -> Result<u64, CelCheckError> {
        let mut size = self.check_and_instrument(&mut turns.iter_range, depth + 1)?;
        size += self.check_and_instrument(&mut turns.accu_init, depth + 1)?;
        let outside = self.names.len();
        self.names.extend([turns.accu_var.clone(), turns.iter_var.clone()]);
        self.names.extend(turns.iter_var2.clone());
        let body = self.check_and_instrument(&mut turns.loop_cond, depth + 1)?
            + self.check_and_instrument(&mut turns.loop_step, depth + 1)?;
        size += body + self.check_and_instrument(&mut turns.result, depth + 1)?;
        self.names.truncate(outside);
        let body = LiteralValue::Int(i64::try_from(body).unwrap_or(i64::MAX).into());
        wrap(&mut turns.iter_range, PAY_LOOP, vec![node(Expr::Literal(body))]);
        Ok(size)
    }
}

fn literal(expr: &IdedExpr) -> Option<&LiteralValue> {
    match &expr.expr {
        Expr::Literal(literal) => Some(literal),
        _ => None,
    }
}

fn literal_size(literal: &LiteralValue) -> u64 {
    match literal {
        LiteralValue::String(text) => budget::text(text.inner().len()),
        LiteralValue::Bytes(bytes) => budget::text(bytes.inner().len()),
        _ => 0,
    }
}

/// Makes a part pay for its value; literals, and lists and maps, whose elements pay, are left alone. So is the list that a loop
/// builds.
fn put_payment(part: &mut IdedExpr) {
    match &part.expr {
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_) => {}
        Expr::Ident(name) if name.starts_with('@') => {}
        _ => wrap(part, PAY, Vec::new()),
    }
}

fn wrap(part: &mut IdedExpr, function: &str, more: Vec<IdedExpr>) {
    let mut args = vec![std::mem::take(part)];
    args.extend(more);
    *part = node(Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args,
    }));
}

const fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}
