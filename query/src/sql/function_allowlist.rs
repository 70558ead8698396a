//! The allow-list of functions: what a statement may call.
//!
//! # Invariants
//!
//! - What is on none of the lists is not supported, whoever brings it: a newer DataFusion adds nothing by itself.
//! - What is offered makes values that are no larger than what it is given, or knows their size before it makes them
//!   ([`super::bounded_functions`]).

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::execution::session_state::SessionStateBuilder;

/// Functions of one row: of any value, of texts and bytes, of numbers, of times, of lists, of ids and JSON.
const SCALAR: [&str; 6] = [
    "arrow_cast arrow_typeof coalesce get_field greatest least named_struct nullif nvl nvl2 struct version",
    "ascii bit_length btrim character_length chr concat concat_ws contains contains_fold decode digest encode ends_with \
     find_in_set initcap left lower lpad ltrim md5 octet_length overlay regexp_count regexp_instr regexp_like regexp_match \
     regexp_replace repeat replace reverse right rpad rtrim sha224 sha256 sha384 sha512 split_part starts_with strpos substr \
     substr_index to_hex translate upper",
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh cot degrees exp factorial floor gcd isnan iszero lcm ln log \
     log10 log2 nanvl pi power radians random round signum sin sinh sqrt tan tanh trunc",
    "current_date current_time date_bin date_part date_trunc from_unixtime make_date make_time now time_bucket timezone to_char \
     to_date to_local_time to_time to_timestamp to_timestamp_micros to_timestamp_millis to_timestamp_nanos \
     to_timestamp_seconds to_unixtime",
    "array_any_value array_append array_concat array_dims array_distinct array_element array_except array_has array_has_all \
     array_has_any array_intersect array_length array_max array_min array_ndims array_pop_back array_pop_front array_position \
     array_positions array_prepend array_remove array_remove_all array_remove_n array_reverse array_slice array_sort array_sum \
     array_to_string array_union cardinality empty flatten make_array string_to_array",
    "histogram_quantile json_get json_keys json_text uuid uuid_text uuid_time",
];
/// Functions of many rows.
const AGGREGATE: [&str; 1] = [
    "any_value approx_distinct approx_median approx_percentile_cont approx_percentile_cont_with_weight array_agg avg bit_and \
     bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp first_value grouping last_value max median min nth_value \
     percentile_cont regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy stddev \
     stddev_pop string_agg sum var var_pop",
];
/// Functions of a row among others.
const WINDOW: [&str; 1] =
    ["cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number"];
/// What clients of PostgreSQL ask of its catalogue, beside all others and those of `postgres::catalog_functions`.
const POSTGRES: [&str; 1] = [
    "array_lower array_upper col_description current_catalog current_database current_role current_schema current_schemas \
     current_setting current_user format_type has_any_column_privilege has_database_privilege has_schema_privilege \
     has_table_privilege obj_description parse_ident pg_backend_pid pg_encoding_to_char pg_function_is_visible \
     pg_get_constraintdef pg_get_expr pg_get_function_arguments pg_get_function_identity_arguments pg_get_function_result \
     pg_get_functiondef pg_get_indexdef pg_get_partkeydef pg_get_ruledef pg_get_serial_sequence \
     pg_get_statisticsobjdef_columns pg_get_triggerdef pg_get_userbyid pg_get_viewdef pg_is_in_recovery \
     pg_operator_is_visible pg_partition_ancestors pg_relation_is_publishable pg_relation_size pg_stat_get_numscans \
     pg_table_is_visible pg_tablespace_location pg_total_relation_size pg_type_is_visible quote_ident session_user set_config \
     shobj_description to_regtype",
];
/// Aggregates that are not supported over a window: each of its rows would have them anew, of all rows of its frame.
const NOT_OVER_WINDOWS: [&str; 1] = [
    "approx_distinct approx_median approx_percentile_cont approx_percentile_cont_with_weight array_agg median percentile_cont \
     string_agg",
];
/// Known and not supported, so that an error may say so: nobody needs them, they would tell of files, or a few letters make them
/// fill the memory.
const NOT_OFFERED: [&str; 1] = [
    "array_add array_avg array_compact array_distance array_normalize array_product array_repeat array_replace \
     array_replace_all array_replace_n array_resize array_scale array_subtract arrays_zip arrow_field arrow_metadata \
     arrow_try_cast cast_to_type cosine_distance file_row_index generate_series inner_product input_file_name levenshtein map \
     map_entries map_extract map_keys map_values range try_cast_to_type union_extract union_tag with_metadata",
];

/// Whether a name is on one of some lists.
pub(super) fn is_one_of(lists: &[&str], name: &str) -> bool {
    lists
        .iter()
        .any(|list| list.split_whitespace().any(|known| known == name))
}

/// Whether a function is an aggregate.
pub(super) fn is_aggregate(name: &str) -> bool {
    is_one_of(&AGGREGATE, name)
}

/// Whether an aggregate may be asked for over a window.
pub(super) fn is_offered_over_windows(aggregate: &str) -> bool {
    !is_one_of(&NOT_OVER_WINDOWS, aggregate)
}

/// Whether a function is known and not supported.
pub(super) fn is_refused(name: &str) -> bool {
    is_one_of(&NOT_OFFERED, name)
}

/// A session with what is offered of its functions; `postgres` says whether those of PostgreSQL's catalogue are.
pub(super) fn offered(state: SessionState, postgres: bool) -> SessionState {
    let scalar = state.scalar_functions().iter();
    let scalar = scalar.filter(|(key, function)| {
        // Once, and not again for each of its other names.
        *key == function.name() && (is_one_of(&SCALAR, key) || postgres && is_one_of(&POSTGRES, key))
    });
    let scalar = scalar.map(|(_, function)| Arc::clone(function)).collect();
    let aggregate = state.aggregate_functions().iter();
    let aggregate = aggregate.filter(|(key, function)| *key == function.name() && is_one_of(&AGGREGATE, key));
    let aggregate = aggregate.map(|(_, function)| Arc::clone(function)).collect();
    let window = state.window_functions().iter();
    let window = window.filter(|(key, function)| *key == function.name() && is_one_of(&WINDOW, key));
    let window = window.map(|(_, function)| Arc::clone(function)).collect();
    SessionStateBuilder::new_from_existing(state)
        .with_scalar_functions(scalar)
        .with_aggregate_functions(aggregate)
        .with_window_functions(window)
        .with_higher_order_functions(Vec::new())
        .build()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use datafusion::execution::SessionStateDefaults as Defaults;
    use datafusion::prelude::SessionContext;
    use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
    use datafusion_pg_catalog::setup_pg_catalog;

    use super::*;

    fn names(lists: &[&[&'static str]]) -> BTreeSet<String> {
        let lists = lists.iter().flat_map(|lists| lists.iter());
        lists
            .flat_map(|list| list.split_whitespace())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn every_function_of_datafusion_is_offered_or_refused_by_name() {
        let mut unknown = BTreeSet::new();
        let known = names(&[&SCALAR, &NOT_OFFERED]);
        let scalar = Defaults::default_scalar_functions();
        unknown.extend(
            scalar
                .iter()
                .map(|function| function.name().to_owned())
                .filter(|name| !known.contains(name)),
        );
        let known = names(&[&AGGREGATE, &NOT_OFFERED]);
        let aggregate = Defaults::default_aggregate_functions();
        unknown.extend(
            aggregate
                .iter()
                .map(|function| function.name().to_owned())
                .filter(|name| !known.contains(name)),
        );
        let known = names(&[&WINDOW, &NOT_OFFERED]);
        let window = Defaults::default_window_functions();
        unknown.extend(
            window
                .iter()
                .map(|function| function.name().to_owned())
                .filter(|name| !known.contains(name)),
        );
        assert_eq!(
            unknown,
            BTreeSet::new(),
            "put each on a list: can a few letters make it fill the memory?"
        );
    }

    #[test]
    fn every_function_of_the_catalogue_of_postgres_is_offered_by_name() {
        let context = SessionContext::new();
        let before: BTreeSet<_> = context.state().scalar_functions().keys().cloned().collect();
        setup_pg_catalog(&context, "datafusion", EmptyContextProvider).unwrap();
        let after: BTreeSet<_> = context.state().scalar_functions().keys().cloned().collect();
        let brought: BTreeSet<_> = after.difference(&before).cloned().collect();
        let known = names(&[&POSTGRES]);
        let unknown: Vec<_> = brought.difference(&known).collect();
        assert!(
            unknown.is_empty(),
            "{unknown:?}: put each on the list: can a few letters make it fill the memory?"
        );
    }

    #[test]
    fn no_function_is_offered_and_refused() {
        let offered = names(&[&SCALAR, &AGGREGATE, &WINDOW, &POSTGRES]);
        let refused = names(&[&NOT_OFFERED]);
        assert!(offered.is_disjoint(&refused));
    }

    #[test]
    fn the_page_on_sql_names_what_is_offered() {
        let page = include_str!("../../../docs/sql.md");
        let (_, section) = page.split_once("## Functions").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let named: BTreeSet<_> = section.split('`').skip(1).step_by(2).collect();
        for name in names(&[&SCALAR, &AGGREGATE, &WINDOW]) {
            assert!(named.contains(name.as_str()), "docs/sql.md does not name {name}");
        }
    }
}
