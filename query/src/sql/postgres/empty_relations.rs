//! Constant folding of questions about catalogue tables that have no rows here: indexes, constraints, triggers and the like.
//!
//! Clients ask about them with functions and correlations that the planner does not know, in a statement that has no rows whatever they
//! mean.
//!
//! | of an empty relation | becomes |
//! |---|---|
//! | `SELECT f(x) AS y FROM empty …` | `SELECT NULL AS y WHERE false`, and is an empty relation itself |
//! | `(SELECT … FROM empty)`, `EXISTS`, `IN`, `ARRAY(…)` | `NULL`, `false`, `false`, `ARRAY[]` |
//!
//! # Invariants
//!
//! - Only what cannot have a row is folded: an inner join with an empty relation, either side of a product, what is read of nothing.
//!   An aggregate or `HAVING` without `GROUP BY`, and a total, has a row and stays.
//! - A name of `WITH` is that relation, whatever the catalogue has under it.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, Expr, Function, FunctionArguments, GroupByExpr, Ident, JoinOperator, Query, Select, SelectItem, SetExpr,
    SetOperator, Statement as Ast, TableFactor, TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut,
};

use super::PG_CATALOG;
use crate::sql::column_headers::header_of;
use crate::sql::function_allowlist::{is_aggregate, is_one_of};

/// Tables of `pg_catalog` and views of `information_schema` that have no rows.
const EMPTY: [&str; 2] = [
    "pg_attrdef pg_auth_members pg_collation pg_constraint pg_cursors pg_db_role_setting pg_default_acl pg_depend pg_enum pg_event_trigger \
     pg_foreign_data_wrapper pg_foreign_server pg_foreign_table pg_index pg_indexes pg_inherits pg_init_privs pg_largeobject \
     pg_largeobject_metadata pg_locks pg_partitioned_table pg_policies pg_policy pg_prepared_statements pg_prepared_xacts \
     pg_publication pg_publication_namespace pg_publication_rel pg_publication_tables pg_rewrite pg_rules pg_seclabel \
     pg_seclabels pg_sequence pg_sequences pg_shdepend pg_shdescription pg_shseclabel pg_stat_activity pg_stat_replication \
     pg_statistic pg_statistic_ext pg_statistic_ext_data pg_stats pg_subscription pg_subscription_rel pg_transform pg_trigger \
     pg_user_mapping pg_user_mappings",
    "check_constraints column_privileges constraint_column_usage constraint_table_usage element_types key_column_usage \
     referential_constraints role_table_grants sequences table_constraints table_privileges triggers view_column_usage \
     view_table_usage",
];
/// Columns that are null in every row, lists of texts by their type: nothing is granted or set, and arguments of functions have no names.
const ALWAYS_NULL: [&str; 1] = [
    "attacl attfdwoptions attoptions datacl defaclacl fdwacl fdwoptions lanacl lomacl nspacl proacl proallargtypes proargmodes \
     proargnames proconfig pubacl relacl reloptions rolconfig spcacl spcoptions srvacl srvoptions typacl umoptions",
];
/// Aggregates of PostgreSQL that are not offered: their `SELECT` has a row even if nothing is read, and stays to be refused.
const OTHER_AGGREGATES: [&str; 1] = [
    "every json_agg json_object_agg jsonb_agg jsonb_object_agg mode percentile_disc stddev_samp variance var_samp xmlagg",
];

/// Whether a table of the catalogue has no rows.
pub(super) fn is_empty(name: &str) -> bool {
    is_one_of(&EMPTY, name)
}

/// Whether a column, as it is written, is null in every row.
pub(super) fn is_always_null(written: &str) -> bool {
    let last = written.rsplit('.').next().unwrap_or(written);
    is_one_of(&ALWAYS_NULL, last.trim_matches('"'))
}

/// See the module.
pub(super) fn fold(statement: &mut Ast) {
    if let Ast::Query(query) = statement {
        EmptyFolder::default().query(query);
    }
}

#[derive(Debug, Default)]
struct EmptyFolder {
    /// The names of `WITH`, and whether they are empty relations.
    named: HashMap<String, bool>,
}

impl EmptyFolder {
    /// Folds a query; whether it has no rows.
    fn query(&mut self, query: &mut Query) -> bool {
        let outer = self.named.clone();
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            let name = cte.alias.name.value.to_lowercase();
            let is_empty = self.query(&mut cte.query);
            self.named.insert(name, is_empty);
        }
        let is_empty = self.body(&mut query.body);
        // What it is ordered by may be gone, and there is nothing to order.
        if is_empty && matches!(query.body.as_ref(), SetExpr::Select(_)) {
            query.order_by = None;
        }
        self.named = outer;
        is_empty
    }

    fn body(&mut self, body: &mut SetExpr) -> bool {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Query(query) => self.query(query),
            SetExpr::SetOperation { left, op, right, .. } => {
                let (left, right) = (self.body(left), self.body(right));
                match op {
                    SetOperator::Union => left && right,
                    SetOperator::Intersect => left || right,
                    SetOperator::Except | SetOperator::Minus => left,
                }
            }
            _ => false,
        }
    }

    fn select(&mut self, select: &mut Select) -> bool {
        let mut is_empty = false;
        for from in &mut select.from {
            is_empty |= self.joined(from);
        }
        if is_empty && !has_row_of_nothing(select) {
            return fold_select(select);
        }
        let mut subqueries = SubqueryFolder { folder: self, level: 0 };
        let _: ControlFlow<()> = VisitMut::visit(select, &mut subqueries);
        false
    }

    /// Whether relations that are joined have no rows together.
    fn joined(&mut self, tables: &mut TableWithJoins) -> bool {
        let mut is_empty = self.relation(&mut tables.relation);
        for join in &mut tables.joins {
            let right = self.relation(&mut join.relation);
            is_empty = match join.join_operator {
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => is_empty || right,
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => right,
                JoinOperator::FullOuter(_) => is_empty && right,
                _ => is_empty,
            };
        }
        is_empty
    }

    fn relation(&mut self, relation: &mut TableFactor) -> bool {
        match relation {
            TableFactor::Table { name, args: None, .. } => {
                let parts = name.0.iter().filter_map(|part| part.as_ident());
                let parts: Vec<String> = parts.map(|part| part.value.to_lowercase()).collect();
                match parts.as_slice() {
                    [name] => match self.named.get(name) {
                        Some(is_empty) => *is_empty,
                        None => name.starts_with("pg_") && is_empty(name),
                    },
                    [.., schema, name] => match schema.as_str() {
                        PG_CATALOG => name.starts_with("pg_") && is_empty(name),
                        "information_schema" => !name.starts_with("pg_") && is_empty(name),
                        _ => false,
                    },
                    [] => false,
                }
            }
            TableFactor::Table {
                name, args: Some(args), ..
            } => {
                let is_unnest = name.0.last().is_some_and(|last| last.to_string() == "unnest");
                is_unnest && args.args.iter().any(|arg| is_always_null(&arg.to_string()))
            }
            TableFactor::Derived { subquery, .. } => self.query(subquery),
            TableFactor::NestedJoin { table_with_joins, .. } => self.joined(table_with_joins),
            _ => false,
        }
    }
}

/// Folds subqueries in the expressions of a query that has rows; what is within them is folded with them.
struct SubqueryFolder<'a> {
    folder: &'a mut EmptyFolder,
    level: usize,
}

impl VisitorMut for SubqueryFolder<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.level += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.level -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.level > 0 {
            return ControlFlow::Continue(());
        }
        let (is_empty, folded) = match expr {
            Expr::Subquery(query) => (self.folder.query(query), Expr::Value(Value::Null.into())),
            Expr::Exists { subquery, negated } | Expr::InSubquery { subquery, negated, .. } => {
                let folded = Expr::Value(Value::Boolean(*negated).into());
                (self.folder.query(subquery), folded)
            }
            Expr::Function(Function {
                args: FunctionArguments::Subquery(query),
                ..
            }) => {
                let folded = Array {
                    elem: Vec::new(),
                    named: true,
                };
                (self.folder.query(query), Expr::Array(folded))
            }
            _ => return ControlFlow::Continue(()),
        };
        if is_empty {
            *expr = folded;
        }
        ControlFlow::Continue(())
    }
}

/// Whether a query has a row although it reads none.
pub(super) fn has_row_of_nothing(select: &Select) -> bool {
    let has_total = |by: &Expr| match by {
        Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_) => true,
        Expr::Tuple(by) => by.is_empty(),
        _ => false,
    };
    match &select.group_by {
        GroupByExpr::Expressions(by, _) if by.is_empty() => {}
        GroupByExpr::Expressions(by, _) => return by.iter().any(has_total),
        GroupByExpr::All(_) => return false,
    }
    let mut found = AggregateFinder { level: 0 };
    let mut items = select.projection.iter();
    select.having.is_some() || items.any(|item| Visit::visit(item, &mut found).is_break())
}

/// Finds aggregates of a query itself, not of one within it.
struct AggregateFinder {
    level: usize,
}

impl Visitor for AggregateFinder {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.level += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.level -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call) if self.level == 0 && call.over.is_none() => {
                let name = call.name.0.last().map(ToString::to_string).unwrap_or_default();
                let name = name.to_lowercase();
                if is_aggregate(&name) || is_one_of(&OTHER_AGGREGATES, &name) {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Takes out of a query that has no rows what need not be planned; `true` as it has none.
fn fold_select(select: &mut Select) -> bool {
    // The columns of a wildcard are known to the planner alone.
    let is_plain = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if !select.projection.iter().all(is_plain) {
        return true;
    }
    let mut taken = HashSet::new();
    for item in &mut select.projection {
        let name = match &*item {
            SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
            SelectItem::UnnamedExpr(expr) => name_of(expr),
            _ => continue,
        };
        let (mut alias, mut number) = (name.clone(), 0_u32);
        while !taken.insert(alias.value.to_lowercase()) {
            number += 1;
            alias.value = format!("{}_{number}", name.value);
        }
        *item = SelectItem::ExprWithAlias {
            expr: Expr::Value(Value::Null.into()),
            alias,
        };
    }
    select.from.clear();
    select.selection = Some(Expr::Value(Value::Boolean(false).into()));
    select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
    select.having = None;
    select.distinct = None;
    true
}

/// The name of a column that has no alias.
pub(super) fn name_of(expr: &Expr) -> Ident {
    match expr {
        Expr::Identifier(name) => name.clone(),
        other => {
            let header = header_of(other);
            let is_plain = header
                .chars()
                .all(|letter| letter.is_ascii_lowercase() || letter == '_');
            if is_plain {
                Ident::new(header)
            } else {
                Ident::with_quote('"', header)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn folded(text: &str) -> String {
        let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap().remove(0);
        fold(&mut statement);
        statement.to_string()
    }

    #[test]
    fn what_cannot_have_a_row_is_folded_and_nothing_else() {
        for (text, expected) in [
            (
                "SELECT f(x) AS a, i.b, unnest(i.c) FROM pg_class c JOIN pg_catalog.pg_index i ON g(i) ORDER BY h(a)",
                "SELECT NULL AS a, NULL AS b, NULL AS unnest WHERE false",
            ),
            (
                "SELECT 1, 2 FROM pg_class, (SELECT 3 AS x FROM pg_index) AS i GROUP BY f(i.x)",
                "SELECT NULL AS \"?column?\", NULL AS \"?column?_1\" WHERE false",
            ),
            (
                "WITH k AS (SELECT UNNEST(conkey) AS n FROM pg_constraint) SELECT n FROM k UNION ALL SELECT oid FROM pg_class",
                "WITH k AS (SELECT NULL AS n WHERE false) SELECT NULL AS n WHERE false UNION ALL SELECT oid FROM pg_class",
            ),
            (
                "SELECT (SELECT f(x) FROM pg_sequence) AS s, EXISTS(SELECT 1 FROM pg_index), ARRAY(SELECT x FROM pg_enum) \
                 FROM pg_class WHERE oid NOT IN (SELECT indexrelid FROM pg_index)",
                "SELECT NULL AS s, false, ARRAY[] FROM pg_class WHERE true",
            ),
            (
                "SELECT ARRAY(SELECT x FROM pg_catalog.unnest(c.reloptions) x) FROM pg_class c",
                "SELECT ARRAY[] FROM pg_class c",
            ),
            (
                "SELECT a FROM information_schema.triggers",
                "SELECT NULL AS a WHERE false",
            ),
            (
                "SELECT a FROM pg_index GROUP BY a HAVING count(*) > 1",
                "SELECT NULL AS a WHERE false",
            ),
        ] {
            assert_eq!(folded(text), expected);
        }
        for text in [
            "SELECT c.oid, i.indrelid FROM pg_class c LEFT JOIN pg_index i ON i.indrelid = c.oid",
            "SELECT count(*) FROM pg_index",
            "SELECT * FROM pg_index",
            "SELECT a FROM pg_class FULL JOIN pg_index ON true",
            "SELECT a FROM UNNEST(x) AS pg_index",
            "SELECT oid FROM pg_class EXCEPT SELECT oid FROM pg_type",
            "SELECT stddev(x) FROM pg_index",
            "SELECT 1 FROM pg_index HAVING true",
            "SELECT a FROM pg_index GROUP BY ROLLUP (a)",
            "WITH pg_index AS (SELECT 1 AS n) SELECT n FROM pg_index",
            "SELECT a FROM triggers",
            "SELECT a FROM public.pg_index",
            "SELECT a FROM information_schema.tables",
        ] {
            assert_eq!(folded(text), text);
        }
        assert_eq!(
            folded("SELECT f(x), (SELECT count(*) FROM pg_class) AS n FROM pg_trigger"),
            "SELECT NULL AS f, NULL AS n WHERE false"
        );
    }
}
