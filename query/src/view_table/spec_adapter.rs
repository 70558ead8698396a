//! The columns of a spec in a Parquet file of any age: which of them it has is seen when it is opened.
//!
//! A file has the columns that its spec had when the file was begun. A column that it lacks, or that it has as another type, is
//! an expression over `promoted`, which every file has.
//!
//! # Invariants
//!
//! - A promoted value is the same wherever its row lies.
//! - No file is opened before a plan comes to it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_datafusion_err;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use model::Table;
use model::spec::SpecColumn;
use model::spec::columns::values;

use crate::spec_tables::SpecTable;

/// Adapts expressions over a spec's table to its files.
#[derive(Debug)]
pub(super) struct SpecAdapterFactory(pub(super) Arc<SpecTable>);

impl PhysicalExprAdapterFactory for SpecAdapterFactory {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        let options = Arc::new(ConfigOptions::default());
        let lacking = self.0.columns.iter().filter(|column| !has(&file, column));
        let derived = lacking.map(|column| -> Result<(String, Arc<dyn PhysicalExpr>)> {
            let field = Arc::new(table.field_with_name(&column.name)?.clone());
            let promoted = Column::new_with_schema(Table::Messages.notes_column(), &table)?;
            let function = PromotedExtraction {
                column: column.clone(),
                field: Arc::clone(&field),
                signature: Signature::exact(vec![DataType::Utf8], Volatility::Immutable),
            };
            let call: Arc<dyn PhysicalExpr> = Arc::new(ScalarFunctionExpr::new(
                PromotedExtraction::NAME,
                Arc::new(ScalarUDF::new_from_impl(function)),
                vec![Arc::new(promoted)],
                field,
                Arc::clone(&options),
            ));
            Ok((column.name.clone(), call))
        });
        Ok(Arc::new(SpecAdapter {
            derived: derived.collect::<Result<_>>()?,
            stored: DefaultPhysicalExprAdapterFactory.create(table, file)?,
        }))
    }
}

/// Whether a file has a column, or one all of whose values are values of it.
fn has(file: &Schema, column: &SpecColumn) -> bool {
    let found = file.field_with_name(&column.name).ok().and_then(SpecColumn::of_arrow);
    found.is_some_and(|found| found.kind.widens_to(column.kind))
}

/// Adapts expressions to one file.
#[derive(Debug)]
struct SpecAdapter {
    /// What stands for the columns that the file lacks, over the columns of the table.
    derived: HashMap<String, Arc<dyn PhysicalExpr>>,
    stored: Arc<dyn PhysicalExprAdapter>,
}

impl PhysicalExprAdapter for SpecAdapter {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let derived = expr.transform(|expr| {
            let column = expr.downcast_ref::<Column>();
            let derived = column.and_then(|column| self.derived.get(column.name()));
            Ok(match derived {
                Some(derived) => Transformed::yes(Arc::clone(derived)),
                None => Transformed::no(expr),
            })
        });
        self.stored.rewrite(derived.data()?)
    }
}

/// A column out of the JSON of `promoted`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PromotedExtraction {
    column: SpecColumn,
    field: FieldRef,
    signature: Signature,
}

impl PromotedExtraction {
    const NAME: &str = "out_of_promoted";
}

impl ScalarUDFImpl for PromotedExtraction {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let column = |promoted: &[ArrayRef]| -> Result<ArrayRef> {
            let promoted = promoted.first().and_then(|column| column.as_string_opt::<i32>());
            let promoted = promoted.ok_or_else(|| internal_datafusion_err!("promoted is not a column of texts"))?;
            let column = values(promoted, std::slice::from_ref(&self.column))?.pop();
            column.ok_or_else(|| internal_datafusion_err!("{} has no values", self.column.name))
        };
        make_scalar_function(column, Vec::new())(&args.args)
    }
}

#[cfg(test)]
mod tests {
    use model::spec::FieldType;
    use model::spec::columns::schema;

    use super::*;

    #[test]
    fn a_file_has_a_column_if_every_value_of_it_is_one_of_the_column() {
        let column = |name: &str, kind| SpecColumn {
            name: name.to_owned(),
            kind,
        };
        let file = schema(&[column("amount", FieldType::Int), column("at", FieldType::Timestamp)]);
        for (wanted, is_there) in [
            (column("amount", FieldType::Int), true),
            (column("amount", FieldType::Float), true),
            (column("amount", FieldType::String), false),
            (column("at", FieldType::Timestamp), true),
            (column("coupon", FieldType::Bool), false),
        ] {
            assert_eq!(has(&file, &wanted), is_there, "{wanted:?}");
        }
    }
}
