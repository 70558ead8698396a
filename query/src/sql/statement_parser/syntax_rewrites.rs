//! Rewrites syntax where PostgreSQL and the planner differ, or the planner misreads it silently.
//!
//! | written | planned as |
//! |---|---|
//! | `FETCH FIRST n ROWS ONLY` | `LIMIT n` |
//! | `LIKE '50#%' ESCAPE '#'` | `LIKE '50\%'`, and of a pattern that is computed, what `replace` makes of it |
//! | `text COLLATE "C"` | the text: texts are ordered by their bytes |
//! | `mod(a, b)`, `every`, `variance` | `a % b`, `bool_and`, `var_samp` |
//! | `SELECT count(*), count(*)`, `SELECT *, ts::date`, `SELECT $1, $2` | the second, what `*` has too, and what has a parameter, by names of their own |
//! | `SELECT DISTINCT ON (1) level, …` | `SELECT DISTINCT ON (level) level, …` |
//! | `SELECT -n AS n … ORDER BY n + 1`, `entity_name AS message … ORDER BY length(message)` | refused: an expression is of columns, the planner takes it to be of the alias |
//! | `RIGHT` and `FULL JOIN … USING`, `NATURAL` | refused: the planner takes the left side's column alone |

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType as SqlType, Distinct, Expr, Fetch, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, JoinConstraint, JoinOperator, LimitClause, ObjectName, OrderByKind,
    Query, Select, SelectItem, SetExpr, TableFactor, Value, ValueWithSpan, WildcardAdditionalOptions,
    visit_expressions,
};

use crate::Error;
use crate::sql::session::TABLES;

/// An expression by its other name; anything else as it is.
pub(super) fn respelled(mut expr: Expr) -> Expr {
    if let Expr::Like {
        any: false,
        pattern,
        escape_char,
        ..
    }
    | Expr::ILike {
        any: false,
        pattern,
        escape_char,
        ..
    } = &mut expr
    {
        escape_with_backslash(pattern, escape_char);
    }
    match expr {
        Expr::Collate { expr, collation } if is_of_bytes(&collation) => *expr,
        Expr::Function(call) => called(call),
        other => other,
    }
}

fn is_of_bytes(collation: &ObjectName) -> bool {
    let name = collation.0.last().map(ToString::to_string).unwrap_or_default();
    ["C", "POSIX", "ucs_basic"].contains(&name.trim_matches('"'))
}

/// A pattern with backslashes before what stands for itself.
fn escape_with_backslash(pattern: &mut Expr, escape: &mut Option<ValueWithSpan>) {
    let Some(Value::SingleQuotedString(by)) = escape.as_ref().map(|escape| &escape.value) else {
        return;
    };
    let mut letters = by.chars();
    let (by, more) = (letters.next(), letters.next());
    if more.is_some() || by == Some('\\') {
        return;
    }
    let escaped = match &*pattern {
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text),
            ..
        }) => escaped_text(text, by).map(literal),
        computed => escaped_when_computed(computed, by),
    };
    if let Some(escaped) = escaped {
        *pattern = escaped;
        *escape = None;
    }
}

fn escaped_text(text: &str, by: Option<char>) -> Option<String> {
    let mut escaped = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let next = if Some(letter) == by { letters.next() } else { None };
        match (letter, next) {
            (letter, None) if Some(letter) == by => return None,
            (_, Some(next)) => escaped.extend(['\\', next]),
            ('\\', None) => escaped.push_str(r"\\"),
            (letter, None) => escaped.push(letter),
        }
    }
    Some(escaped)
}

/// The same of a pattern that is computed: backslashes doubled, what is escaped by itself set aside, the others made backslashes.
fn escaped_when_computed(pattern: &Expr, by: Option<char>) -> Option<Expr> {
    let mut steps = vec![("\\".to_owned(), r"\\".to_owned())];
    match by {
        Some('%' | '_' | '\u{1}') => return None,
        Some(by) => steps.extend([
            (format!("{by}{by}"), '\u{1}'.to_string()),
            (by.to_string(), "\\".to_owned()),
            ('\u{1}'.to_string(), by.to_string()),
        ]),
        None => {}
    }
    let pattern = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(pattern.clone()),
        data_type: SqlType::Text,
        array: false,
        format: None,
    };
    let steps = steps.into_iter();
    Some(steps.fold(pattern, |text, (from, to)| {
        call("replace", [text, literal(from), literal(to)])
    }))
}

fn literal(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).into())
}

/// The call of a function.
pub(super) fn call<const N: usize>(name: &str, args: [Expr; N]) -> Expr {
    let args = args.map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)));
    Expr::Function(Function {
        name: ObjectName::from(Ident::new(name)),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.into(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn called(mut call: Function) -> Expr {
    let name = match call.name.0.as_slice() {
        [part] => part.to_string().to_lowercase(),
        _ => return Expr::Function(call),
    };
    let renamed = match name.as_str() {
        "every" => "bool_and",
        "variance" => "var_samp",
        "mod" => return remainder(call),
        _ => return Expr::Function(call),
    };
    call.name = ObjectName::from(Ident::new(renamed));
    Expr::Function(call)
}

fn remainder(mut call: Function) -> Expr {
    let FunctionArguments::List(args) = &mut call.args else {
        return Expr::Function(call);
    };
    match args.args.as_mut_slice() {
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(left)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(right)),
        ] => {
            let null = || Expr::Value(Value::Null.into());
            let nested = |expr: &mut Expr| Box::new(Expr::Nested(Box::new(std::mem::replace(expr, null()))));
            let remainder = Expr::BinaryOp {
                left: nested(left),
                op: BinaryOperator::Modulo,
                right: nested(right),
            };
            Expr::Nested(Box::new(remainder))
        }
        _ => Expr::Function(call),
    }
}

/// Makes `FETCH FIRST` a limit.
pub(super) fn fetch_is_limit(query: &mut Query) {
    let is_plain = |fetch: &mut Fetch| !fetch.with_ties && !fetch.percent;
    let offset = match &mut query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset {
            limit: None,
            offset,
            limit_by,
        }) if limit_by.is_empty() => offset.take(),
        Some(_) => return,
    };
    let fetch = query.fetch.take_if(is_plain);
    if fetch.is_none() && offset.is_none() {
        return;
    }
    let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
    query.limit_clause = Some(LimitClause::LimitOffset {
        limit: fetch.map(|fetch| fetch.quantity.unwrap_or_else(one)),
        offset,
        limit_by: Vec::new(),
    });
}

/// Makes the places of columns in `DISTINCT ON` these columns.
pub(super) fn distinct_ordinals(select: &mut Select) -> Result<(), Error> {
    let Some(Distinct::On(keys)) = &mut select.distinct else {
        return Ok(());
    };
    for key in keys {
        let Expr::Value(ValueWithSpan {
            value: Value::Number(place, _),
            ..
        }) = key
        else {
            continue;
        };
        let places = place.parse().unwrap_or(usize::MAX);
        // Behind a `*` nobody knows yet which column is at a place.
        let mut items = select.projection.iter().map_while(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
            _ => None,
        });
        let Some(column) = places.checked_sub(1).and_then(|before| items.nth(before)) else {
            return Err(Error::statement(format!(
                "DISTINCT ON ({place}) has no column in that place: write the column itself"
            )));
        };
        *key = column.clone();
    }
    Ok(())
}

/// Gives another name to what is asked for twice, and one to what parameters may make alike.
pub(super) fn name_alike(select: &mut Select) {
    let mut seen: HashMap<String, u32> = HashMap::new();
    // All columns of what is read are asked for already.
    let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
    let of_all = u32::from(select.projection.contains(&all));
    // The planner calls all subqueries the same.
    let is_subquery = |item: &&SelectItem| matches!(item, SelectItem::UnnamedExpr(Expr::Subquery(_)));
    let has_subqueries = select.projection.iter().filter(is_subquery).count() > 1;
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else {
            continue;
        };
        // Casts have no part in a name.
        let mut named = &*expr;
        while let Expr::Cast { expr, .. } | Expr::Nested(expr) = named {
            named = expr;
        }
        let name = named.to_string();
        let is_column = matches!(named, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        let times = seen.entry(name.clone()).or_insert(if is_column { of_all } else { 0 });
        *times += 1;
        let is_alike = has_parameter(expr) || has_subqueries && matches!(expr, Expr::Subquery(_));
        if *times > 1 || (is_alike && select.distinct.is_none()) {
            let alias = match *times {
                1 => name,
                more => format!("{name}_{}", more - 1),
            };
            let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            *item = SelectItem::ExprWithAlias {
                expr,
                alias: Ident::with_quote('"', alias),
            };
        }
    }
}

fn has_parameter(expr: &Expr) -> bool {
    let is_parameter = |part: &Expr| {
        matches!(
            part,
            Expr::Value(ValueWithSpan {
                value: Value::Placeholder(_),
                ..
            })
        )
    };
    let found = visit_expressions(expr, |part| {
        if is_parameter(part) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    found.is_break()
}

/// An order by expressions of names that are aliases: the same as a column that is asked for is that column, another is refused.
pub(super) fn order(query: &mut Query) -> Result<(), Error> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return Ok(());
    };
    let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
        return Ok(());
    };
    for by in order {
        if matches!(by.expr, Expr::Identifier(_) | Expr::Value(_)) {
            continue;
        }
        for (item, place) in select.projection.iter().zip(1..) {
            let SelectItem::ExprWithAlias { expr, alias } = item else {
                continue;
            };
            // An alias that is, or may be, another column as well.
            let hides = !is_itself(expr, alias) && (mentions(expr, alias) || may_be_column(select, alias));
            if !hides || !mentions(&by.expr, alias) {
                continue;
            }
            if *expr == by.expr {
                by.expr = Expr::Value(Value::Number(place.to_string(), false).into());
                break;
            }
            return Err(Error::statement(format!(
                "ORDER BY {} is of the column {alias}, which the alias {alias} hides: give the alias another name",
                by.expr
            )));
        }
    }
    Ok(())
}

/// Whether what a query reads may have a column by a name: what is no table of telemetry may have any.
fn may_be_column(select: &Select, name: &Ident) -> bool {
    let joined = select.from.iter().flat_map(|from| &from.joins);
    let read = select.from.iter().map(|from| &from.relation);
    let mut read = read.chain(joined.map(|join| &join.relation));
    read.any(|relation| {
        let TableFactor::Table { name: table, .. } = relation else {
            return true;
        };
        let table = table.to_string();
        let known = TABLES.into_iter().find(|known| known.name() == table);
        known.is_none_or(|known| {
            let mut columns = known.columns().iter();
            columns.any(|column| column.name.eq_ignore_ascii_case(&name.value))
        })
    })
}

/// Whether an alias is the name of the column that it is given to.
fn is_itself(expr: &Expr, alias: &Ident) -> bool {
    let name = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(path) => path.last(),
        _ => None,
    };
    name.is_some_and(|name| name.value.eq_ignore_ascii_case(&alias.value))
}

/// Whether an expression, which is no subquery, has a column by a name.
fn mentions(expr: &Expr, name: &Ident) -> bool {
    let found = visit_expressions(expr, |part| match part {
        Expr::Identifier(part) if part.value.eq_ignore_ascii_case(&name.value) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Refuses joins whose columns would be those of the left side alone.
pub(super) fn joins(select: &Select) -> Result<(), Error> {
    let joins = select.from.iter().flat_map(|from| &from.joins);
    for join in joins {
        let by = match &join.join_operator {
            JoinOperator::Right(by) | JoinOperator::RightOuter(by) | JoinOperator::FullOuter(by) => by,
            _ => continue,
        };
        if matches!(by, JoinConstraint::Using(_) | JoinConstraint::Natural) {
            return Err(Error::statement(
                "RIGHT JOIN and FULL JOIN take no USING and no NATURAL here: write ON a.key = b.key, and coalesce(a.key, b.key) for the key",
            ));
        }
    }
    Ok(())
}
