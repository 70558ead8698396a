//! The modules of `docs/wasm.md` in Rust and C, as the commands there compile them (rustc 1.95, clang 22).

use sha2::{Digest, Sha256};

use super::*;

/// Each language, the digest of the page's block that was compiled, and what came of it.
const COMPILED: [(&str, &str, &[u8]); 2] = [
    (
        "rust",
        "a617a877b850f738230de8b43f525bc9af67809be443532ca0ccff24370d23ff",
        include_bytes!("../testdata/rust.wasm"),
    ),
    (
        "c",
        "6cd2a1f21d9addf2923b9969498972dd10ac363bcb7f7dbce3d58cdd2a554ee1",
        include_bytes!("../testdata/c.wasm"),
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_modules_of_the_documentation_do_what_they_say() {
    let page = include_str!("../../../../../docs/wasm.md");
    let folder = tempfile::tempdir().unwrap();
    let long = "a".repeat(70_000);
    for (language, digest, module) in COMPILED {
        let (_, block) = page.split_once(&format!("```{language}\n")).unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let found = format!("{:x}", Sha256::digest(block));
        assert_eq!(
            found, digest,
            "compile the module in {language} of docs/wasm.md anew and put it in testdata"
        );
        let path = folder.path().join(language);
        std::fs::write(&path, module).unwrap();
        let messages = json!([{ "raw": "a loud word" }, { "raw": "ÄB 7" }, { "raw": long }]);
        let flow = run(json!({ "module": path }), messages).await;
        let out = in_order(&flow, "out");
        assert_eq!(out[..2], ["A LOUD WORD", "ÄB 7"], "{language}");
        // The one in C has no room for more than 64 KiB, and says so.
        match language {
            "c" => assert!(out.len() == 2 && flow.says("guest", "refused"), "{out:?}"),
            // The sink keeps so much of a text.
            _ => assert_eq!(out[2].len(), crate::gears::log_sink::MAX_TEXT),
        }
    }
}
