//! Packs the page (`web/`) into the program: a table of its files, plain and gzipped, and the digest of them all.
//!
//! ```text
//! web/index.html, web/{app,style,vendor} ─▶ $OUT_DIR/page/* and $OUT_DIR/page_files.rs ─▶ src/api/page.rs
//! ```
//!
//! # Invariants
//!
//! - The same files make the same table, byte for byte: they are in the order of their names, and gzip has no time in it.
//! - Our own scripts and style sheets go without their comments and indentation (`build/strip.rs`), those of others as they are.
//! - `index.html` names its files by the digest, all that its script imports, and for each view all that is loaded with it, so that a
//!   browser asks for everything at once.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use strip::{SourceLanguage, strip};

#[path = "build/strip.rs"]
mod strip;

type Failure = Box<dyn Error>;
/// What files have, by their paths.
type PageFiles = BTreeMap<String, Vec<u8>>;

const ROOT: &str = "../web";
const FOLDERS: [&str; 3] = ["app", "style", VENDORED];
const VENDORED: &str = "vendor";
const INDEX: &str = "index.html";
/// What `index.html` starts.
const SCRIPT: &str = "app/main.js";
/// The list of views: a line for each, with its name in addresses and its module.
const VIEWS: &str = "app/pages.js";
/// What `index.html` has in place of the files of each view, and of the modules that its script imports.
const VIEW_FILES: &str = "<!-- views -->";
const MODULES: &str = "<!-- modules -->";
/// What `index.html` has in place of where the files are.
const BASE: &str = "{{base}}";
/// Hexadecimal digits of the digest that addresses have.
const DIGITS: usize = 16;
/// How scripts name files that they load later, and what is behind the name.
const LOADED_LATER: [(&str, &str); 2] = [(IMPORTED, "\")"), ("new URL(\"", "\", import.meta.url)")];
const IMPORTED: &str = "import(\"";
/// How a line of a module begins that loads a style sheet of its own.
const OWN_STYLE: &str = "ownStyle(\"";

/// A file that another one names.
struct FileReference {
    from: String,
    to: String,
    /// Whether it is loaded with the other one, not later.
    is_static: bool,
}

fn main() -> Result<(), Failure> {
    let mut files = PageFiles::new();
    for folder in FOLDERS {
        read_below(folder, &mut files)?;
    }
    let template = String::from_utf8(read(INDEX)?)?;
    files.insert(INDEX.to_owned(), template.clone().into_bytes());
    for name in FOLDERS.iter().chain([&INDEX]) {
        println!("cargo::rerun-if-changed={ROOT}/{name}");
    }
    let mut references = Vec::new();
    for (path, bytes) in &files {
        if path == INDEX || path.ends_with(".js") {
            let text = std::str::from_utf8(bytes).map_err(|error| format!("web/{path}: {error}"))?;
            references.extend(references_of(path, text));
        }
    }
    let index = index(&template, &files, &references)?;
    files.insert(INDEX.to_owned(), index.clone().into_bytes());
    let digest = digest(&files);
    files.remove(INDEX);
    let index = index.replace(BASE, &format!("/web/{digest}"));
    write_table(&digest, &index, &files, &references)
}

fn read(path: &str) -> Result<Vec<u8>, Failure> {
    fs::read(Path::new(ROOT).join(path)).map_err(|error| format!("web/{path}: {error}").into())
}

/// Reads the files below a folder that a browser has a use for.
fn read_below(folder: &str, files: &mut PageFiles) -> Result<(), Failure> {
    let entries = fs::read_dir(Path::new(ROOT).join(folder)).map_err(|error| format!("web/{folder}: {error}"))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name
            .to_str()
            .ok_or_else(|| format!("web/{folder}: a name that is no UTF-8"))?;
        let path = format!("{folder}/{name}");
        if entry.file_type()?.is_dir() {
            read_below(&path, files)?;
        } else if content_type(&path).is_some() {
            let bytes = packed(&path, read(&path)?)?;
            files.insert(path, bytes);
        }
    }
    Ok(())
}

/// What a browser is given of a file.
fn packed(path: &str, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let language = match path.rsplit_once('.') {
        _ if path.starts_with(VENDORED) => return Ok(bytes),
        Some((_, "js")) => SourceLanguage::Script,
        Some((_, "css")) => SourceLanguage::Style,
        _ => return Ok(bytes),
    };
    let text = String::from_utf8(bytes).map_err(|error| format!("web/{path}: {error}"))?;
    let stripped = strip(&text, language).map_err(|error| format!("web/{path}, {error}"))?;
    Ok(stripped.into_bytes())
}

/// What a file is for a browser; none if it has no use for it.
fn content_type(path: &str) -> Option<&'static str> {
    match path.rsplit_once('.')?.1 {
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "html" => Some("text/html; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        // The licences.
        "md" => Some("text/plain; charset=utf-8"),
        _ => None,
    }
}

fn digest(files: &PageFiles) -> String {
    let mut hasher = Sha256::new();
    for (path, bytes) in files {
        hasher.update(format!("{path} {}\n", bytes.len()));
        hasher.update(bytes);
    }
    let mut digest = format!("{:x}", hasher.finalize());
    digest.truncate(DIGITS);
    digest
}

/// The files that a script, or `index.html`, names.
fn references_of(from: &str, text: &str) -> Vec<FileReference> {
    let reference = |name: &str, is_static| FileReference {
        from: from.to_owned(),
        to: resolved(from, name),
        is_static,
    };
    if from == INDEX {
        let behind = text.split(BASE).skip(1);
        let names = behind.filter_map(|rest| rest.strip_prefix('/')?.split('"').next());
        return names.map(|name| reference(name, false)).collect();
    }
    let lines = text.lines().map(|line| line.strip_prefix("await ").unwrap_or(line));
    let styles = lines
        .filter(|line| line.starts_with(OWN_STYLE))
        .filter_map(|line| between(line, OWN_STYLE));
    let mut found: Vec<_> = styles.map(|name| reference(&format!("style/{name}"), true)).collect();
    for keyword in ["import", "export"] {
        for (at, _) in text.match_indices(keyword) {
            let (before, statement) = text.split_at(at);
            found.extend(static_import(before, statement).map(|name| reference(name, true)));
        }
    }
    for (opening, closing) in LOADED_LATER {
        for (at, _) in text.match_indices(opening) {
            let name = text.get(at + opening.len()..).and_then(|rest| rest.split_once(closing));
            let name = name.filter(|(name, _)| !name.contains('"'));
            found.extend(name.map(|(name, _)| reference(name, false)));
        }
    }
    found
}

/// The module that a statement takes something from, if it begins where one may begin.
fn static_import<'t>(before: &str, statement: &'t str) -> Option<&'t str> {
    let before = before.trim_end_matches(' ');
    if !before.is_empty() && !before.ends_with(['\n', ';']) {
        return None;
    }
    let statement = statement.split(';').next()?.trim_end();
    let quote = statement
        .chars()
        .next_back()
        .filter(|last| ['"', '\''].contains(last))?;
    let (head, name) = statement.strip_suffix(quote)?.rsplit_once(quote)?;
    let head = head.trim_end();
    (head == "import" || head.ends_with("from")).then_some(name)
}

/// A name relative to the file that has it, from the root of the page; others stay as they are.
fn resolved(from: &str, name: &str) -> String {
    if !name.starts_with("./") && !name.starts_with("../") {
        return name.to_owned();
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in name.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A script, and what is loaded with it: its modules and their style sheets.
fn loaded_with<'r>(script: &'r str, references: &'r [FileReference]) -> Vec<&'r str> {
    let mut modules = vec![script];
    let mut at = 0;
    while let Some(module) = modules.get(at).copied() {
        at += 1;
        for reference in references.iter().filter(|one| one.is_static && one.from == module) {
            if !modules.contains(&reference.to.as_str()) {
                modules.push(&reference.to);
            }
        }
    }
    modules
}

/// The views, by their names in addresses, and their modules.
fn views(files: &PageFiles) -> Result<Vec<(&str, String)>, Failure> {
    let text = files.get(VIEWS).ok_or_else(|| format!("web/{VIEWS} is missing"))?;
    let mut views = Vec::new();
    for line in std::str::from_utf8(text)?.lines() {
        if let Some(module) = between(line, IMPORTED) {
            let name = between(line, "name: \"").ok_or_else(|| format!("web/{VIEWS}: no name in {line}"))?;
            views.push((name, resolved(VIEWS, module)));
        }
    }
    Ok(views)
}

/// What a line has between something that ends with a quotation mark and the next one.
fn between<'t>(line: &'t str, opening: &str) -> Option<&'t str> {
    let (_, rest) = line.split_once(opening)?;
    rest.split('"').next()
}

/// What is served as the page, all but where its files are.
fn index(template: &str, files: &PageFiles, references: &[FileReference]) -> Result<String, Failure> {
    for place in [VIEW_FILES, MODULES] {
        if !template.contains(place) {
            return Err(format!("web/{INDEX} has no {place}").into());
        }
    }
    let first = loaded_with(SCRIPT, references);
    let mut lists = Vec::new();
    for (name, module) in views(files)? {
        let mut loaded = loaded_with(&module, references);
        loaded.retain(|file| !first.contains(file));
        lists.push(format!("{name:?}:{loaded:?}"));
    }
    // A block of data, which no browser runs: a policy without inline scripts lets it be.
    let lists = format!(
        "<script type=\"application/json\" id=\"views\">{{{}}}</script>",
        lists.join(",")
    );
    let links = first.iter();
    let links: Vec<_> = links
        .map(|module| format!("<link rel=\"modulepreload\" href=\"{BASE}/{module}\" />"))
        .collect();
    Ok(template
        .replace(VIEW_FILES, &lists)
        .replace(MODULES, &links.join("\n    ")))
}

fn write_table(digest: &str, index: &str, files: &PageFiles, references: &[FileReference]) -> Result<(), Failure> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let index = row(&out, INDEX, index.as_bytes())?;
    let mut rows = Vec::new();
    for (path, bytes) in files {
        rows.push(row(&out, path, bytes)?);
    }
    let named = references.iter();
    let named: Vec<_> = named
        .map(|one| format!("({:?}, {:?}, {})", one.from, one.to, one.is_static))
        .collect();
    let (rows, named) = (rows.join(", "), named.join(", "));
    let table = format!(
        "const DIGEST: &str = {digest:?};\nstatic INDEX: PageFile = {index};\nstatic FILES: &[PageFile] = &[{rows}];\n\
         #[cfg(test)]\nconst REFERENCES: &[(&str, &str, bool)] = &[{named}];\n"
    );
    fs::write(out.join("page_files.rs"), table)?;
    Ok(())
}

/// Writes a file as it is and gzipped: its row of the table.
fn row(out: &Path, path: &str, bytes: &[u8]) -> Result<String, Failure> {
    let kind = content_type(path).ok_or("a file without a type")?;
    let plain = out.join("page").join(path);
    let packed = out.join("page").join(format!("{path}.gz"));
    if let Some(folder) = plain.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&plain, bytes)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    fs::write(&packed, encoder.finish()?)?;
    Ok(format!(
        "PageFile {{ path: {path:?}, content_type: {kind:?}, plain: include_bytes!({plain:?}), packed: include_bytes!({packed:?}) }}"
    ))
}
