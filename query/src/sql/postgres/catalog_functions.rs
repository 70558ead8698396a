//! Functions of the catalogue and of sessions: most say one thing, whatever they are given.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, StringArray};
use arrow_schema::DataType;
use datafusion::common::{ScalarValue, internal_datafusion_err, plan_datafusion_err};
use datafusion::error::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, ScalarUDF, Signature, SimpleScalarUDF, TypeSignature, Volatility, create_udf,
};

use super::{CATALOG, POSTGRES_SETTINGS, POSTGRES_VERSION, SCHEMA};

/// Texts that are not known, or not kept: descriptions, definitions, sizes, names of what is not here, and functions of locks, which
/// nobody holds and which answer with nothing.
const NULL_TEXTS: &str = "col_description inet_client_addr inet_server_addr obj_description pg_advisory_unlock_all pg_describe_object \
     pg_get_function_arguments pg_get_function_identity_arguments pg_get_function_result pg_get_function_sqlbody \
     pg_get_functiondef pg_get_indexdef pg_get_ruledef pg_get_serial_sequence pg_get_statisticsobjdef pg_get_triggerdef \
     pg_get_viewdef pg_size_pretty pg_tablespace_location shobj_description";
/// Sizes that are not known, and numbers of what is not here.
const NULL_NUMBERS: &str = "inet_client_port inet_server_port pg_database_size pg_indexes_size pg_relation_filenode pg_sequence_last_value \
     pg_table_size pg_tablespace_size";
const TRUTHS: &str = "has_column_privilege has_function_privilege has_language_privilege has_sequence_privilege has_tablespace_privilege \
     has_type_privilege pg_collation_is_visible pg_conversion_is_visible pg_function_is_visible pg_has_role \
     pg_opclass_is_visible pg_operator_is_visible pg_opfamily_is_visible pg_statistics_obj_is_visible pg_ts_config_is_visible \
     pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible pg_type_is_visible";
const FALSEHOODS: &str = "pg_is_in_recovery pg_is_other_temp_schema row_security_active";

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let version = format!("PostgreSQL {POSTGRES_VERSION} (platform {})", env!("CARGO_PKG_VERSION"));
    let texts = [
        ("version", version.as_str()),
        ("current_user", "platform"),
        ("current_role", "platform"),
        ("current_catalog", CATALOG),
        ("getdatabaseencoding", "UTF8"),
        ("pg_encoding_to_char", "UTF8"),
    ];
    let text = |says: &str| ScalarValue::Utf8(Some(says.to_owned()));
    let mut functions: Vec<ScalarUDF> = texts.iter().map(|(name, says)| constant(name, text(says))).collect();
    functions.extend(
        NULL_TEXTS
            .split_whitespace()
            .map(|name| constant(name, ScalarValue::Utf8(None))),
    );
    functions.extend(
        NULL_NUMBERS
            .split_whitespace()
            .map(|name| constant(name, ScalarValue::Int64(None))),
    );
    functions.extend(
        TRUTHS
            .split_whitespace()
            .map(|name| constant(name, ScalarValue::Boolean(Some(true)))),
    );
    functions.extend(
        FALSEHOODS
            .split_whitespace()
            .map(|name| constant(name, ScalarValue::Boolean(Some(false)))),
    );
    // UTF-8, and no schema.
    functions.push(constant("pg_char_to_encoding", ScalarValue::Int32(Some(6))));
    functions.push(constant("pg_my_temp_schema", ScalarValue::Int32(Some(0))));
    functions.extend(
        ["to_regclass", "to_regproc", "to_regnamespace", "to_regrole"].map(|name| {
            // Who asks for a name by a function asks whether something of their own is here.
            constant(name, ScalarValue::Utf8(None))
        }),
    );
    functions.push(current_setting());
    functions.push(set_config());
    functions.push(quote_literal());
    functions
}

fn constant(name: &str, says: ScalarValue) -> ScalarUDF {
    let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    let (any, kind) = (Signature::one_of(any, Volatility::Stable), says.data_type());
    let says = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(says.clone()));
    SimpleScalarUDF::new_with_signature(name, any, kind, Arc::new(says)).into()
}

/// `current_setting(name)`, of what clients ask for in the midst of a query.
fn current_setting() -> ScalarUDF {
    let says = |args: &[ColumnarValue]| {
        let value = match args.first() {
            Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))) if name == "search_path" => Some(SCHEMA),
            Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))) => {
                let found = POSTGRES_SETTINGS
                    .iter()
                    .find(|(known, _)| known.eq_ignore_ascii_case(name));
                found.map(|(_, value)| *value)
            }
            _ => None,
        };
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(value.map(str::to_owned))))
    };
    let one_or_two = vec![TypeSignature::Any(1), TypeSignature::Any(2)];
    let signature = Signature::one_of(one_or_two, Volatility::Stable);
    SimpleScalarUDF::new_with_signature("current_setting", signature, DataType::Utf8, Arc::new(says)).into()
}

/// Settings that a session obeys: who sets one together with something else must not believe that it is set.
const OBEYED: [&str; 2] = ["statement_timeout", "timezone"];

/// `set_config(name, value, is_local)`, which sets nothing within a query, and says the value as if it had.
fn set_config() -> ScalarUDF {
    let says = |args: &[ColumnarValue]| {
        if let Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))) = args.first()
            && OBEYED.iter().any(|obeyed| obeyed.eq_ignore_ascii_case(name))
        {
            return Err(plan_datafusion_err!(
                "Invalid function call set_config of {name}: it stands alone, with texts that are written out, or is written SET"
            ));
        }
        let value = args.get(1).cloned();
        value.ok_or_else(|| internal_datafusion_err!("set_config has a value"))
    };
    let kinds = vec![DataType::Utf8, DataType::Utf8, DataType::Boolean];
    let signature = Signature::exact(kinds, Volatility::Stable);
    SimpleScalarUDF::new_with_signature("set_config", signature, DataType::Utf8, Arc::new(says)).into()
}

/// `quote_literal(text)`.
fn quote_literal() -> ScalarUDF {
    let quoted = |args: &[ArrayRef]| -> Result<ArrayRef> {
        let texts = args.first().and_then(|texts| texts.as_string_opt::<i32>());
        let texts = texts.ok_or_else(|| internal_datafusion_err!("literals are texts"))?;
        let quoted: StringArray = texts.iter().map(|text| text.map(literal)).collect();
        Ok(Arc::new(quoted))
    };
    create_udf(
        "quote_literal",
        vec![DataType::Utf8],
        DataType::Utf8,
        Volatility::Immutable,
        Arc::new(make_scalar_function(quoted, Vec::new())),
    )
}

/// A text as it is written in a statement.
fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_is_what_a_statement_reads_as_the_text() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\b'"), r"E'a\\b'''");
    }
}
