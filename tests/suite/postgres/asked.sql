SET extra_float_digits = 3;
SET application_name = 'DBeaver 24.2.0 - Main <platform>';
SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE;
SHOW search_path;
SHOW TRANSACTION ISOLATION LEVEL;
SELECT version();
SELECT current_schema(), session_user;
SELECT current_database();
SELECT current_user;
SELECT * FROM pg_catalog.pg_settings WHERE name = 'standard_conforming_strings';
select string_agg(word, ',') from pg_catalog.pg_get_keywords() where word <> ALL ('{a,abs,absolute,action}'::text[]);
SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datname='platform';
SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate OR db.datname='platform' ORDER BY db.datname;
SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass
ORDER BY nspname;
SELECT a.oid,a.* FROM pg_catalog.pg_roles a ORDER BY a.rolname;
SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description
FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid
WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C');
SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr, pg_catalog.pg_get_partkeydef(c.oid) as partition_key
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass
WHERE c.relnamespace=2200 AND c.relkind not in ('i','I','c');
SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid)
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum)
LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid)
LEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.oid=16385 ORDER BY a.attnum;
SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description
FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass
WHERE c.conrelid=16385 ORDER BY c.oid;
SELECT current_setting('server_version_num')::int/100 as version;
SELECT extversion FROM pg_extension WHERE extname = 'timescaledb';
SELECT CASE WHEN quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )
      THEN quote_ident(table_name)
      ELSE quote_ident(table_schema) || '.' || quote_ident(table_name)
    END AS "table"
    FROM information_schema.tables
    WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache')
    ORDER BY 1;
SELECT quote_ident(column_name) AS "column", data_type AS "type"
    FROM information_schema.columns
    WHERE quote_ident(table_name) = 'logs';
SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public';
SELECT nspname FROM pg_catalog.pg_namespace WHERE has_schema_privilege(nspname, 'USAGE');
SELECT NULL AS TABLE_CAT, n.nspname AS TABLE_SCHEM, c.relname AS TABLE_NAME
FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c
WHERE c.relnamespace = n.oid AND n.nspname LIKE 'public' AND c.relkind IN ('r','p','v') ORDER BY TABLE_SCHEM, TABLE_NAME;
SELECT t.typname, t.typelem FROM pg_catalog.pg_type t WHERE t.oid = 1184;
SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = 25;
SELECT pg_backend_pid();

SELECT typname AS name, oid, typarray AS array_oid, oid::regtype::text AS regtype, typdelim AS delimiter
FROM pg_type t WHERE t.oid = to_regtype('hstore') ORDER BY t.oid;
EXPLAIN SELECT regexp_count(level, 'o') FROM logs;
