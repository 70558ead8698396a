//! Rewrites expressions of questions about the catalogue that the planner, or the catalogue's tables, do not know.
//!
//! | written | planned as |
//! |---|---|
//! | `relacl`, `reloptions` and their like | `CAST(NULL AS TEXT[])`: nobody grants or sets anything |
//! | `tableoid` | 0 |
//! | `typreceive <> 0`, `= p.oid`, `= 'array_in'::regproc` | compared with `'-'`, `p.proname`, `'array_in'`: columns of functions have their names |
//! | `(SELECT x FROM t WHERE …)` as a value | `(SELECT max(x) …)`: the planner wants to see that it is one |
//! | `ARRAY(SELECT x FROM t …)` | `(SELECT array_agg(x) FROM t …)` |
//! | `to_regclass('t')` | the name of the table, if there is one |
//! | what is made of `search_path` by `generate_series` | `public` |
//! | asyncpg's `WITH RECURSIVE typeinfo_tree` | the types that are asked for, and those of the items of lists: there are no others |
//!
//! # Invariants
//!
//! - Only questions about the catalogue come here; none of them reads rows of telemetry by a value that this would change.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, DataType as SqlType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, Query, Select, SelectItem, SetExpr, Statement as Ast,
    TableFactor, TableWithJoins, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::empty_relations::{has_row_of_nothing, is_always_null, name_of};
use crate::sql::function_allowlist::is_one_of;

/// Columns of functions, which have their names for values.
const OF_FUNCTIONS: [&str; 1] = [
    "typinput typoutput typreceive typsend typmodin typmodout typanalyze typsubscript prosupport oprcode oprrest oprjoin amhandler \
     aggfnoid aggtransfn aggfinalfn amproc conproc",
];
/// What takes the place of schemas of `search_path` that are counted by `generate_series`.
const SCHEMAS: &str = "SELECT 1 AS r, 'public' AS nspname";
/// What Grafana looks for among them.
const SCHEMA_OF_TABLE: &str = "quote_ident(table_schema)";
/// What finds a table by its name.
const CLASS: &str = "SELECT max(relname) FROM pg_catalog.pg_class";

/// The tree of types in which asyncpg looks up those that it does not know.
const TYPE_TREE: &str = "typeinfo_tree";
/// Its rows, which nothing but lists makes a tree.
const TYPES_AND_ITEMS: &str = "SELECT t.oid, n.nspname AS ns, t.typname AS name, t.typtype AS kind, CAST(NULL AS INT) AS basetype, t.typelem AS elemtype, \
     t.typdelim AS elemdelim, CAST(NULL AS INT) AS range_subtype, CAST(NULL AS TEXT[]) AS attrtypoids, CAST(NULL AS TEXT[]) AS attrnames, \
     CASE WHEN t.typelem = 0 THEN 1 ELSE 0 END AS depth, CAST(NULL AS TEXT) AS basetype_name, CAST(NULL AS TEXT) AS elemtype_name, \
     CAST(NULL AS TEXT) AS range_subtype_name \
     FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace \
     WHERE t.oid = ANY($1::oid[]) OR t.oid IN (SELECT e.typelem FROM pg_catalog.pg_type AS e WHERE e.oid = ANY($1::oid[])) \
     ORDER BY depth DESC";

/// See the module.
pub(super) fn rewrite(statement: &mut Ast) {
    if let Ast::Query(query) = statement
        && is_type_tree(query)
        && let Some(types) = parsed(TYPES_AND_ITEMS)
    {
        *query = types;
    }
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut CatalogRewriter);
}

struct CatalogRewriter;

impl VisitorMut for CatalogRewriter {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && is_null_column(expr)
            {
                let alias = name_of(expr);
                let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = relation
            && counts_schemas(subquery)
            && let Some(schemas) = schemas()
        {
            *subquery = schemas;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if is_null_column(expr) {
            *expr = null_list();
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Identifier(name) if name.value == "tableoid" => *expr = number("0"),
            Expr::CompoundIdentifier(path) if path.last().is_some_and(|name| name.value == "tableoid") => {
                *expr = number("0");
            }
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Eq | BinaryOperator::NotEq,
                right,
            } => {
                compare_by_name(left, right);
                compare_by_name(right, left);
            }
            Expr::InSubquery {
                expr: value,
                subquery,
                negated,
            } if subquery.to_string().contains("current_setting('search_path')") => {
                *expr = Expr::InList {
                    expr: value.clone(),
                    list: vec![text("public")],
                    negated: *negated,
                };
            }
            // What the catalogue's own parser makes of the same.
            Expr::InList { expr: value, list, .. }
                if matches!(list.as_slice(), [one] if is_empty_text(one)) && value.to_string() == SCHEMA_OF_TABLE =>
            {
                *list = vec![text("public")];
            }
            Expr::Subquery(query) => {
                aggregate(query, "max");
            }
            // `x = ANY($1)`, as the catalogue's own parser reads it.
            Expr::Function(call) if call.name.to_string() == "array_contains" => {
                if let Some(any) = any_of_parameter(&call.args) {
                    *expr = any;
                }
            }
            Expr::Function(call) if call.name.to_string().ends_with("to_regclass") => {
                if let Some(class) = class_of(&call.args) {
                    *expr = class;
                }
            }
            Expr::Function(Function {
                args: FunctionArguments::Subquery(query),
                ..
            }) => {
                let is_list = aggregate(query, "array_agg");
                if is_list {
                    *expr = Expr::Subquery(query.clone());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn is_null_column(expr: &Expr) -> bool {
    match expr {
        Expr::Identifier(name) => is_always_null(&name.value),
        Expr::CompoundIdentifier(path) => path.last().is_some_and(|name| is_always_null(&name.value)),
        _ => false,
    }
}

fn null_list() -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Value(Value::Null.into())),
        data_type: SqlType::Array(ArrayElemTypeDef::SquareBracket(Box::new(SqlType::Text), None)),
        array: false,
        format: None,
    }
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

fn text(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).into())
}

fn is_empty_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) if text.is_empty())
}

/// Makes what a column of functions is compared with a name.
fn compare_by_name(column: &Expr, other: &mut Expr) {
    let name = match column {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(path) => match path.last() {
            Some(name) => name,
            None => return,
        },
        _ => return,
    };
    if !is_one_of(&OF_FUNCTIONS, &name.value) {
        return;
    }
    match other {
        Expr::Value(ValueWithSpan {
            value: Value::Number(digits, _),
            ..
        }) if digits == "0" => *other = text("-"),
        Expr::CompoundIdentifier(path) => {
            if let Some(last) = path.last_mut().filter(|last| last.value == "oid") {
                *last = Ident::new("proname");
            }
        }
        // `'name'::regproc`, as the catalogue's own parser reads it.
        Expr::Subquery(query) => {
            let written = query.to_string();
            let named = written
                .rsplit_once("WHERE proname = '")
                .and_then(|(_, name)| name.strip_suffix('\''));
            if let Some(name) = named {
                *other = text(name.strip_prefix("pg_catalog.").unwrap_or(name));
            }
        }
        _ => {}
    }
}

/// Whether something is read, and all of it from the catalogue.
fn reads_catalogue(from: &[TableWithJoins]) -> bool {
    let joined = from
        .iter()
        .flat_map(|tables| tables.joins.iter().map(|join| &join.relation));
    let mut read = from.iter().map(|tables| &tables.relation).chain(joined);
    let is_catalogue = |relation: &TableFactor| match relation {
        TableFactor::Table { name, args: None, .. } => {
            let name = name.to_string();
            name.starts_with("pg_") || name.starts_with("information_schema.")
        }
        _ => false,
    };
    !from.is_empty() && read.all(is_catalogue)
}

/// Makes the one value of each row of a query one of all of them; whether it could.
fn aggregate(query: &mut Query, function: &str) -> bool {
    if query.limit_clause.is_some() || query.fetch.is_some() {
        return false;
    }
    let SetExpr::Select(select) = query.body.as_mut() else {
        return false;
    };
    if !reads_catalogue(&select.from) || has_row_of_nothing(select) {
        return false;
    }
    let [item] = select.projection.as_mut_slice() else {
        return false;
    };
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return false;
    };
    let value = std::mem::replace(expr, Expr::Value(Value::Null.into()));
    *item = SelectItem::UnnamedExpr(call(function, value));
    select.distinct = None;
    query.order_by = None;
    true
}

fn call(function: &str, argument: Expr) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(Ident::new(function)),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Whether a query asks for the tree of types, and is not one that has a table of the same name.
fn is_type_tree(query: &Query) -> bool {
    let named = query.with.iter().filter(|with| with.recursive);
    let mut named = named.flat_map(|with| &with.cte_tables);
    named.any(|cte| cte.alias.name.value == TYPE_TREE && cte.query.to_string().contains("pg_type"))
}

/// Whether a query numbers the schemas of `search_path`.
fn counts_schemas(query: &Query) -> bool {
    let written = query.to_string().to_lowercase();
    let begins_so = written.starts_with("select s.r, (current_schemas(");
    begins_so && written.contains("generate_series(1, array_upper(current_schemas(")
}

fn schemas() -> Option<Box<Query>> {
    parsed(SCHEMAS)
}

/// A comparison with the items of a list that is a parameter.
fn any_of_parameter(args: &FunctionArguments) -> Option<Expr> {
    let FunctionArguments::List(list) = args else {
        return None;
    };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(list)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(compared)),
    ] = list.args.as_slice()
    else {
        return None;
    };
    let is_parameter = |expr: &Expr| matches!(expr, Expr::Value(value) if matches!(value.value, Value::Placeholder(_)));
    is_parameter(list).then(|| Expr::AnyOp {
        left: Box::new(compared.clone()),
        compare_op: BinaryOperator::Eq,
        right: Box::new(list.clone()),
        is_some: false,
    })
}

/// The name of the table that is looked for by its name.
fn class_of(args: &FunctionArguments) -> Option<Expr> {
    let FunctionArguments::List(list) = args else {
        return None;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))] = list.args.as_slice() else {
        return None;
    };
    let Value::SingleQuotedString(name) = &value.value else {
        return None;
    };
    let mut query = parsed(CLASS)?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    let table = name.rsplit('.').next().unwrap_or(name).trim_matches('"');
    select.selection = Some(Expr::BinaryOp {
        left: Box::new(Expr::Identifier(Ident::new("relname"))),
        op: BinaryOperator::Eq,
        right: Box::new(text(table)),
    });
    Some(Expr::Subquery(query))
}

fn parsed(query: &str) -> Option<Box<Query>> {
    match Parser::parse_sql(&PostgreSqlDialect {}, query).ok()?.pop()? {
        Ast::Query(query) => Some(query),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rewritten(text: &str) -> String {
        let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap().remove(0);
        rewrite(&mut statement);
        statement.to_string()
    }

    #[test]
    fn the_types_that_asyncpg_looks_up_are_no_tree() {
        let asked = "WITH RECURSIVE typeinfo_tree(oid, depth) AS (SELECT oid, 0 FROM pg_type UNION ALL SELECT t.oid, tt.depth + 1 \
                     FROM pg_type AS t, typeinfo_tree AS tt) SELECT * FROM typeinfo_tree";
        let rewritten = rewritten(asked);
        assert!(rewritten.starts_with("SELECT t.oid, n.nspname AS ns"), "{rewritten}");
        assert!(
            rewritten.to_lowercase().contains("t.oid = any($1::oid[])"),
            "{rewritten}"
        );
    }

    #[test]
    fn a_table_of_a_statement_that_is_called_as_the_tree_of_types_is_left_alone() {
        for asked in [
            "WITH typeinfo_tree AS (SELECT oid FROM pg_type) SELECT * FROM typeinfo_tree",
            "WITH RECURSIVE typeinfo_tree AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM typeinfo_tree) SELECT n FROM typeinfo_tree",
        ] {
            assert_eq!(rewritten(asked), asked);
        }
    }

    #[test]
    fn expressions_that_the_planner_does_not_know_are_rewritten() {
        for (text, expected) in [
            (
                "SELECT c.relacl, l.tableoid AS t FROM pg_class AS c WHERE attacl IS NOT NULL",
                "SELECT CAST(NULL AS TEXT[]) AS relacl, 0 AS t FROM pg_class AS c WHERE CAST(NULL AS TEXT[]) IS NOT NULL",
            ),
            (
                "SELECT oid FROM pg_type WHERE (typreceive <> 0 OR 0 = typsend) AND typreceive = p.oid AND typlen <> 0",
                "SELECT oid FROM pg_type WHERE (typreceive <> '-' OR '-' = typsend) AND typreceive = p.proname AND typlen <> 0",
            ),
            (
                "SELECT typinput = (SELECT oid FROM pg_catalog.pg_proc WHERE proname = 'pg_catalog.array_in') AS a FROM pg_type",
                "SELECT typinput = 'array_in' AS a FROM pg_type",
            ),
            (
                "SELECT a FROM pg_type AS t WHERE (SELECT c.relkind = 'c' FROM pg_class AS c WHERE c.oid = t.typrelid)",
                "SELECT a FROM pg_type AS t WHERE (SELECT max(c.relkind = 'c') FROM pg_class AS c WHERE c.oid = t.typrelid)",
            ),
            (
                "SELECT ARRAY(SELECT rolname FROM pg_roles ORDER BY 1) AS a, (SELECT count(*) FROM pg_class)",
                "SELECT (SELECT array_agg(rolname) FROM pg_roles) AS a, (SELECT count(*) FROM pg_class)",
            ),
            (
                "SELECT (SELECT level FROM logs), level IN ('') FROM pg_class WHERE quote_ident(table_schema) IN ('')",
                "SELECT (SELECT level FROM logs), level IN ('') FROM pg_class WHERE quote_ident(table_schema) IN ('public')",
            ),
            (
                "SELECT 1 FROM pg_class WHERE array_contains($1, relkind)",
                "SELECT 1 FROM pg_class WHERE relkind = ANY($1)",
            ),
            (
                "SELECT to_regclass('public.logs')",
                "SELECT (SELECT max(relname) FROM pg_catalog.pg_class WHERE relname = 'logs')",
            ),
            (
                "SELECT r.r FROM (SELECT s.r, (current_schemas(false))[s.r] AS nspname FROM \
                 generate_series(1, array_upper(current_schemas(false), 1)) AS s (r)) AS r",
                "SELECT r.r FROM (SELECT 1 AS r, 'public' AS nspname) AS r",
            ),
        ] {
            assert_eq!(rewritten(text), expected);
        }
    }
}
