//! What goes over the wire: requests of the first page, and the size of each file that the Mixer serves, plain and gzipped. The browser
//! tells both (Resource Timing): encoded bodies, without the heads of answers.

use std::fs;
use std::path::Path;

use harness::{BrowserTab, Failure};
use serde_json::{Value, json};

use crate::measures::verdict;

/// The folders of the page's source whose files are served, and how their names end.
const FOLDERS: [&str; 3] = ["app", "style", "vendor"];
const KINDS: [&str; 4] = [".js", ".css", ".svg", ".md"];
/// Path, bytes on the wire, bytes.
const LOADED: &str = "['navigation', 'resource'].flatMap(type => performance.getEntriesByType(type)).map(entry => \
    [new URL(entry.name).pathname, entry.encodedBodySize, entry.decodedBodySize])";
/// What there may be of code, gzipped: of our own, and of others.
const MOST_OWN: f64 = 60_000.0;
const MOST_VENDORED: f64 = 40_000.0;

/// Prints both, asked in a tab that shows the first page.
pub(super) fn print(tab: &mut BrowserTab) -> Result<(), Failure> {
    let loaded = tab.eval(LOADED)?;
    let loaded = sizes(&loaded)?;
    let wire: f64 = loaded.iter().map(|(_, wire, _)| wire).sum();
    let plain: f64 = loaded.iter().map(|(_, _, plain)| plain).sum();
    let own = loaded.iter().filter(|(path, ..)| path == "/" || is_own(path));
    let own: f64 = own.map(|(_, wire, _)| wire).sum();
    println!(
        "first page: {} requests, {wire:.0} bytes over the wire, {plain:.0} plain; files of our own {own:.0}{}",
        loaded.len(),
        verdict(own, MOST_OWN, "bytes")
    );
    for (path, wire, plain) in &loaded {
        println!("  {wire:>8.0} {plain:>8.0} {path}");
    }
    print_files(tab)
}

/// Prints every file that is served.
fn print_files(tab: &mut BrowserTab) -> Result<(), Failure> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        list(
            &Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../web")).join(folder),
            folder,
            &mut paths,
        )?;
    }
    paths.sort();
    let served = tab.eval(&format!(
        "(async paths => {{ performance.clearResourceTimings(); performance.setResourceTimingBufferSize(1000); \
         const base = document.querySelector('script[src$=\"/app/main.js\"]').src.replace(/app\\/main\\.js$/, ''); \
         for (const path of paths) await (await fetch(base + path, {{ cache: 'no-store' }})).arrayBuffer(); \
         await new Promise(go => setTimeout(go, 200)); \
         return performance.getEntriesByType('resource').filter(({{ name, responseStatus }}) => name.startsWith(base) && responseStatus === 200) \
           .map(entry => [entry.name.slice(base.length), entry.encodedBodySize, entry.decodedBodySize]); }})({})",
        json!(paths)
    ))?;
    let served = sizes(&served)?;
    println!("files, gzipped and plain:");
    for (path, wire, plain) in &served {
        println!("  {wire:>8.0} {plain:>8.0} {path}");
    }
    let code = served.iter().filter(|(path, ..)| !path.ends_with(".md"));
    let (vendored, own): (Vec<_>, Vec<_>) = code.partition(|(path, ..)| path.starts_with("vendor/"));
    let sum = |files: &[&FileSize]| files.iter().map(|(_, wire, _)| wire).sum::<f64>();
    println!(
        "gzipped: {:.0} bytes in {} files of our own{}, {:.0} bytes of others{}",
        sum(&own),
        own.len(),
        verdict(sum(&own), MOST_OWN, "bytes"),
        sum(&vendored),
        verdict(sum(&vendored), MOST_VENDORED, "bytes")
    );
    Ok(())
}

/// Whether an address is that of a file of our own.
fn is_own(path: &str) -> bool {
    path.starts_with("/web/") && !path.contains("/vendor/")
}

/// A file, its bytes on the wire, its bytes.
type FileSize = (String, f64, f64);

fn sizes(told: &Value) -> Result<Vec<FileSize>, Failure> {
    let told = told.as_array().ok_or("the browser tells no sizes")?;
    let size = |one: &Value| Some((one[0].as_str()?.to_owned(), one[1].as_f64()?, one[2].as_f64()?));
    Ok(told.iter().filter_map(size).collect())
}

fn list(folder: &Path, name: &str, paths: &mut Vec<String>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{name}/{}", entry.file_name().display());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &path, paths)?;
        } else if KINDS.iter().any(|kind| path.ends_with(*kind)) {
            paths.push(path);
        }
    }
    Ok(())
}
