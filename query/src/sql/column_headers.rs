//! Headers of columns as PostgreSQL gives them: `count` and `?column?`, where the planner says `count(*)` and `Int64(1)`.
//!
//! # Invariants
//!
//! - Headers change nothing but the names that a client is shown: the planner has its own, no two of which are the same.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType as SqlType, Expr, Ident, Query, SelectItem, SetExpr, Statement as Ast, TrimWhereField,
};

use crate::columns::SqlColumn;

const UNNAMED: &str = "?column?";

/// The headers of a query: from its first column to a `*`, and from there, or another, to its last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnHeaders {
    front: Vec<String>,
    /// From the last on.
    back: Vec<String>,
}

impl ColumnHeaders {
    /// Those of a statement, if it is a query.
    pub(super) fn of(statement: &Ast) -> Option<Self> {
        let Ast::Query(query) = statement else {
            return None;
        };
        let items = items(query)?;
        let header = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) => Some(header_of(expr)),
            SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
            _ => None,
        };
        let front: Vec<String> = items.iter().map_while(header).collect();
        let back = if front.len() == items.len() {
            Vec::new()
        } else {
            items.iter().rev().map_while(header).collect()
        };
        Some(Self { front, back })
    }

    /// Gives them to the columns of an answer.
    pub(super) fn apply(&self, columns: &mut [SqlColumn]) {
        if self.front.len() + self.back.len() > columns.len() {
            return;
        }
        for (column, header) in columns.iter_mut().zip(&self.front) {
            column.name.clone_from(header);
        }
        for (column, header) in columns.iter_mut().rev().zip(&self.back) {
            column.name.clone_from(header);
        }
    }
}

/// What a query selects, the first one of several that are put together.
fn items(query: &Query) -> Option<&[SelectItem]> {
    let mut body = query.body.as_ref();
    loop {
        body = match body {
            SetExpr::Select(select) => return Some(&select.projection),
            SetExpr::Query(query) => query.body.as_ref(),
            SetExpr::SetOperation { left, .. } => left.as_ref(),
            _ => return None,
        };
    }
}

/// The header of a column that has no alias.
pub(super) fn header_of(expr: &Expr) -> String {
    named(expr).map_or_else(|| UNNAMED.to_owned(), |(name, _)| name)
}

/// A name in small letters, unless it is quoted.
fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

/// A name, and whether it is better than that of a type it is cast to.
fn named(expr: &Expr) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_owned(), true));
    match expr {
        Expr::Identifier(name) => strong(&folded(name)),
        Expr::CompoundIdentifier(path) => strong(&folded(path.last()?)),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => named(inner),
        Expr::CompoundFieldAccess { root, .. } => named(root),
        Expr::Cast { expr, data_type, .. } => match named(expr) {
            Some((name, true)) => Some((name, true)),
            _ => Some((type_name(data_type), false)),
        },
        Expr::TypedString(typed) => Some((type_name(&typed.data_type), false)),
        Expr::Interval(_) => Some(("interval".to_owned(), false)),
        Expr::Function(call) => strong(&call.name.0.last()?.as_ident()?.value.to_lowercase()),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(named) {
            Some((name, true)) => Some((name, true)),
            _ => Some(("case".to_owned(), false)),
        },
        Expr::Subquery(query) => match items(query)?.first()? {
            SelectItem::UnnamedExpr(expr) => named(expr),
            SelectItem::ExprWithAlias { alias, .. } => strong(&folded(alias)),
            _ => None,
        },
        Expr::Exists { .. } => strong("exists"),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        _ => None,
    }
}

/// What PostgreSQL calls a type within.
fn type_name(kind: &SqlType) -> String {
    let name = match kind {
        SqlType::SmallInt(_) | SqlType::Int2(_) => "int2",
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => "int4",
        SqlType::BigInt(_) | SqlType::Int8(_) => "int8",
        SqlType::Real | SqlType::Float4 => "float4",
        SqlType::Float(_) | SqlType::Float8 | SqlType::Double(_) | SqlType::DoublePrecision => "float8",
        SqlType::Bool | SqlType::Boolean => "bool",
        SqlType::Numeric(_) | SqlType::Decimal(_) | SqlType::Dec(_) => "numeric",
        SqlType::Varchar(_) | SqlType::CharacterVarying(_) | SqlType::CharVarying(_) => "varchar",
        SqlType::Char(_) | SqlType::Character(_) => "bpchar",
        SqlType::Interval { .. } => "interval",
        SqlType::Custom(name, _) => {
            let last = name.0.last().and_then(|last| last.as_ident());
            return last.map_or_else(|| UNNAMED.to_owned(), |last| last.value.to_lowercase());
        }
        SqlType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => return type_name(item),
        other => {
            // TIMESTAMP(3) WITH TIME ZONE and the like.
            let written = other.to_string().to_lowercase();
            let plain = written.split(['(', ' ']).next().unwrap_or_default();
            return if written.contains(" with time zone") {
                format!("{plain}tz")
            } else {
                plain.to_owned()
            };
        }
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn headers(text: &str) -> ColumnHeaders {
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap().remove(0);
        ColumnHeaders::of(&statement).unwrap()
    }

    #[test]
    fn columns_are_called_as_postgresql_calls_them() {
        for (expr, header) in [
            ("count(*)", "count"),
            ("pg_catalog.Upper(level)", "upper"),
            ("1", "?column?"),
            ("level || 'x'", "?column?"),
            ("l.ts", "ts"),
            ("l.ts::date", "ts"),
            ("count(*)::int", "count"),
            ("1::int", "int4"),
            ("'a'::text", "text"),
            ("NULL::timestamptz", "timestamptz"),
            ("1.5::double precision", "float8"),
            ("TIMESTAMP WITH TIME ZONE '2026-01-01'", "timestamptz"),
            ("INTERVAL '1 hour'", "interval"),
            ("CASE WHEN true THEN 1 END", "case"),
            ("CASE WHEN true THEN 1 ELSE n END", "n"),
            ("extract(epoch FROM ts)", "extract"),
            ("ts AT TIME ZONE 'UTC'", "timezone"),
            ("(SELECT max(ts) FROM logs)", "max"),
            ("ARRAY[1]", "array"),
            ("true", "?column?"),
            ("trim(LEADING 'a' FROM level)", "ltrim"),
            ("level AS \"The level\"", "The level"),
            ("level AS TheLevel", "thelevel"),
            ("Level", "level"),
            ("l.TS", "ts"),
            ("l.\"TS\"", "TS"),
            ("(SELECT 1 AS One)", "one"),
            ("(SELECT 1 AS \"One\")", "One"),
        ] {
            assert_eq!(headers(&format!("SELECT {expr} FROM logs l")).front, [header], "{expr}");
        }
        let both = headers("(SELECT 1, upper(a) FROM t) UNION SELECT 2 AS b, c FROM u");
        assert_eq!(both.front, ["?column?", "upper"]);
    }

    #[test]
    fn columns_of_a_wildcard_keep_their_names() {
        let column = |name: &str| SqlColumn {
            name: name.to_owned(),
            kind: "text".to_owned(),
        };
        let mut columns = ["count(*)", "a", "b", "Int64(1)", "a_1"].map(column);
        headers("SELECT count(*), t.*, 1, a FROM t").apply(&mut columns);
        let names = columns.map(|column| column.name);
        assert_eq!(names, ["count", "a", "b", "?column?", "a"]);
        let mut few = [column("x")];
        headers("SELECT 1, 2 FROM t").apply(&mut few);
        assert_eq!(few, [column("x")]);
    }
}
