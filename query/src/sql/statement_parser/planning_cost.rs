//! Planning cost: how much there is to plan in a statement when names are expanded.
//!
//! | bound of | by | why |
//! |---|---|---|
//! | levels of an expression | [`DEEPEST`] | planning recurses |
//! | levels between conditions of `CASE` within each other, multiplied | [`MOST_CONDITIONS`] | at each level it is asked whether what is within can be null |
//! | `ANY` and `ALL` within each other | [`DEEPEST_QUANTIFIERS`] | what they compare is planned three times and more |
//! | tables, with those behind names of `WITH` | [`MOST_TABLES`] | a name may stand for many, and they for more |
//!
//! `TABLESAMPLE`, `EXCEPT ALL` and `INTERSECT ALL` are refused here too: the planner takes them for something else.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, SetExpr, SetOperator, SetQuantifier, Statement as Ast, TableFactor, Visit, Visitor,
};

use super::{LEVELS, has_write};
use crate::Error;

const DEEPEST: usize = 200;
const MOST_TABLES: usize = 64;
const MOST_CONDITIONS: usize = 2_048;
const DEEPEST_QUANTIFIERS: usize = 4;

/// Refuses a statement that would exhaust a planner, that has a change within it, or that would be planned wrongly.
pub(super) fn check_planning_cost(ast: &Ast) -> Result<(), Error> {
    Visit::visit(ast, &mut PlanningCost::default())
        .break_value()
        .map_or(Ok(()), Err)
}

fn too_deep() -> ControlFlow<Error> {
    ControlFlow::Break(Error::statement(format!(
        "an expression has more than {DEEPEST} levels; lists of values go into IN (…)"
    )))
}

/// How much a statement is when names are replaced by what they stand for.
#[derive(Debug, Default)]
struct PlanningCost {
    levels: usize,
    /// The conditions of `CASE`, by their address.
    conditions: HashSet<usize>,
    /// The levels at which those begin that are around what is visited.
    around: Vec<usize>,
    /// How many `ANY` and `ALL` are around it.
    quantifiers: usize,
    /// Tables of the queries that are being visited, the innermost last.
    open: Vec<usize>,
    /// Queries that have a name, by their address, which is theirs alone while the statement is borrowed.
    named: HashMap<usize, String>,
    /// The tables behind a name; where two queries have one, the more of both.
    tables: HashMap<String, usize>,
}

impl PlanningCost {
    fn count(&mut self, tables: usize) -> ControlFlow<Error> {
        if self.open.is_empty() {
            self.open.push(0);
        }
        if let Some(count) = self.open.last_mut() {
            *count = count.saturating_add(tables);
            if *count > MOST_TABLES {
                return ControlFlow::Break(Error::statement(format!(
                    "it reads more than {MOST_TABLES} tables, counted again wherever a name of WITH stands for them"
                )));
            }
        }
        ControlFlow::Continue(())
    }
}

impl PlanningCost {
    fn quantify(&mut self, expr: &Expr) -> ControlFlow<Error> {
        self.quantifiers += usize::from(is_quantified(expr));
        if self.quantifiers > DEEPEST_QUANTIFIERS {
            return ControlFlow::Break(Error::statement(format!(
                "ANY and ALL are more than {DEEPEST_QUANTIFIERS} within each other: put brackets around comparisons, or take inner ones into a WITH"
            )));
        }
        ControlFlow::Continue(())
    }

    fn condition(&mut self, expr: &Expr) -> ControlFlow<Error> {
        if let Expr::Case { conditions, .. } = expr {
            let conditions = conditions.iter().map(|when| address(&when.condition));
            self.conditions.extend(conditions);
        }
        if self.conditions.contains(&address(expr)) {
            self.around.push(self.levels);
            let between = self.around.iter().zip(self.around.iter().skip(1));
            let asked = between.fold(1_usize, |asked, (outer, inner)| {
                asked.saturating_mul((inner - outer).max(2))
            });
            if asked > MOST_CONDITIONS {
                return ControlFlow::Break(Error::statement(
                    "CASE in conditions of CASE is too deep: take inner ones into a WITH",
                ));
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether it compares with any or all of several values, which are no rows of a query.
const fn is_quantified(expr: &Expr) -> bool {
    matches!(expr, Expr::AnyOp { .. } | Expr::AllOp { .. })
}

/// `EXCEPT ALL` or `INTERSECT ALL` of a body, of which the planner makes joins that do not count copies.
fn counting(body: &SetExpr) -> Option<SetOperator> {
    let SetExpr::SetOperation {
        op,
        set_quantifier,
        left,
        right,
    } = body
    else {
        return None;
    };
    let counts = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
    if counts && *op != SetOperator::Union {
        return Some(*op);
    }
    counting(left).or_else(|| counting(right))
}

fn address<T>(node: &T) -> usize {
    std::ptr::from_ref(node).addr()
}

impl Visitor for PlanningCost {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        self.open.push(0);
        if self.open.len() > LEVELS {
            return too_deep();
        }
        if has_write(&query.body) {
            return ControlFlow::Break(Error::ReadOnly {
                what: "a change within a query".to_owned(),
            });
        }
        if let Some(op) = counting(&query.body) {
            return ControlFlow::Break(Error::statement(format!(
                "{op} ALL is not supported: give equal rows numbers on both sides, row_number() OVER (PARTITION BY all columns), \
                 and write {op}"
            )));
        }
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.named
                .insert(address::<Query>(&cte.query), cte.alias.name.value.to_lowercase());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        let tables = self.open.pop().unwrap_or_default();
        if let Some(name) = self.named.get(&address(query)) {
            let known = self.tables.entry(name.clone()).or_default();
            *known = tables.max(*known);
            return ControlFlow::Continue(());
        }
        self.count(tables)
    }

    fn pre_visit_select(&mut self, _: &Select) -> ControlFlow<Error> {
        self.count(1)
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<Error> {
        let name = name.to_string().to_lowercase();
        let tables = self.tables.get(name.trim_matches('"')).copied();
        self.count(tables.unwrap_or(1))
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Error> {
        match table {
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                ControlFlow::Break(Error::statement(
                    "TABLESAMPLE is not supported: write WHERE random() < 0.01 for about one row of a hundred",
                ))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Error> {
        self.quantify(expr)?;
        self.condition(expr)?;
        self.levels += 1;
        if self.levels > DEEPEST {
            return too_deep();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Error> {
        self.levels -= 1;
        self.quantifiers -= usize::from(is_quantified(expr));
        if self.conditions.contains(&address(expr)) {
            self.around.pop();
        }
        ControlFlow::Continue(())
    }
}
