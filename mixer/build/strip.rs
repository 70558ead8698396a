//! Strips comments and indentation from scripts and style sheets: the part of minification that needs no parser.
//!
//! A lexer that knows strings, template literals with the code in their `${…}`, regular expressions and comments; all else is copied.
//!
//! # Invariants
//!
//! - Line n stays line n, so that what a browser says of a place is true of the source.
//! - Strings, templates and regular expressions are copied byte for byte.
//! - Where a slash could be a division or begin a regular expression, it is an error, not a guess: a division has blanks around it.

/// What a text is written in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceLanguage {
    Script,
    Style,
}

/// Words that a value follows, so that a slash behind them begins a regular expression.
const BEFORE_VALUE: [&str; 14] = [
    "await",
    "case",
    "delete",
    "do",
    "else",
    "in",
    "instanceof",
    "new",
    "of",
    "return",
    "throw",
    "typeof",
    "void",
    "yield",
];

/// What an open brace ends when it is closed.
enum OpenBrace {
    Block,
    /// The code in a template literal, whose text goes on behind it.
    Substitution,
}

struct CommentStripper<'t> {
    text: &'t str,
    /// Bytes that were read.
    at: usize,
    stripped: String,
    open: Vec<OpenBrace>,
}

/// A text without its comments, its indentation and blanks at the ends of its lines.
///
/// # Errors
/// The line and what is wrong with it: something is not closed, or a slash may mean two things.
pub(crate) fn strip(text: &str, language: SourceLanguage) -> Result<String, String> {
    let mut stripper = CommentStripper {
        text,
        at: 0,
        stripped: String::with_capacity(text.len()),
        open: Vec::new(),
    };
    stripper.run(language == SourceLanguage::Script)?;
    Ok(stripper.stripped)
}

impl<'t> CommentStripper<'t> {
    fn run(&mut self, is_script: bool) -> Result<(), String> {
        while let Some(next) = self.rest().chars().next() {
            match next {
                '/' if self.rest().starts_with("/*") => self.skip_block_comment()?,
                '/' if is_script && self.rest().starts_with("//") => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                }
                '/' if is_script && self.begins_regex()? => self.copy_literal('/')?,
                '"' | '\'' => self.copy_literal(next)?,
                '`' => {
                    self.copy(1);
                    self.copy_template()?;
                }
                '{' => {
                    self.open.push(OpenBrace::Block);
                    self.copy(1);
                }
                '}' => self.close_brace()?,
                '\n' => self.end_line(),
                ' ' | '\t' if self.is_line_begin() => self.at += 1,
                _ => self.copy(next.len_utf8()),
            }
        }
        if self.open.is_empty() {
            return Ok(());
        }
        Err(self.failure("a brace is not closed"))
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn copy(&mut self, bytes: usize) {
        let rest = self.rest();
        self.stripped.push_str(rest.get(..bytes).unwrap_or(rest));
        self.at += bytes;
    }

    fn failure(&self, what: &str) -> String {
        let read = self.text.get(..self.at).unwrap_or(self.text);
        format!("line {}: {what}", read.matches('\n').count() + 1)
    }

    /// Only of code: what ends with a line in a literal goes on to its end.
    fn is_line_begin(&self) -> bool {
        self.stripped.is_empty() || self.stripped.ends_with('\n')
    }

    fn end_line(&mut self) {
        let used = self.stripped.trim_end_matches([' ', '\t']).len();
        self.stripped.truncate(used);
        self.copy(1);
    }

    /// A comment parts words, and its lines stay.
    fn skip_block_comment(&mut self) -> Result<(), String> {
        let begun = "/*".len();
        let Some(end) = self.rest().get(begun..).and_then(|rest| rest.find("*/")) else {
            return Err(self.failure("a comment is not closed"));
        };
        let behind = self.at + begun + end + "*/".len();
        if !self.is_line_begin() {
            self.stripped.push(' ');
        }
        while let Some(line) = self.rest().find('\n').filter(|line| self.at + line < behind) {
            self.at += line;
            self.end_line();
        }
        self.at = behind;
        Ok(())
    }

    fn close_brace(&mut self) -> Result<(), String> {
        self.copy(1);
        match self.open.pop() {
            Some(OpenBrace::Block) => Ok(()),
            Some(OpenBrace::Substitution) => self.copy_template(),
            None => Err(self.failure("a brace is closed that is not open")),
        }
    }

    /// Whether a slash begins a regular expression: where a value may stand. Behind a value it divides.
    fn begins_regex(&self) -> Result<bool, String> {
        let before = self.stripped.trim_end();
        let is_word = |one: char| one.is_alphanumeric() || one == '_' || one == '$';
        let word = before.rsplit(|one: char| !is_word(one)).next().unwrap_or_default();
        // A property may have the name of a word; three dots spread what follows.
        let head = before.strip_suffix(word).unwrap_or(before);
        let is_property = head.ends_with('.') && !head.ends_with("..");
        if BEFORE_VALUE.contains(&word) && !is_property {
            return Ok(true);
        }
        let is_behind_value = !word.is_empty() || is_property || before.ends_with([')', ']', '}', '"', '\'', '`']);
        let is_behind_step = before.ends_with("++") || before.ends_with("--");
        let is_division = matches!(self.rest().chars().nth(1), Some(' ' | '\n' | '='));
        if is_behind_step || (is_behind_value && !is_division) {
            let what = "a slash divides or begins a regular expression: put blanks around a division, make the other a constant";
            return Err(self.failure(what));
        }
        Ok(!is_behind_value)
    }

    /// Copies a string or a regular expression, which end on their line.
    fn copy_literal(&mut self, end: char) -> Result<(), String> {
        let (mut is_escaped, mut is_class) = (false, false);
        for (at, one) in self.rest().char_indices().skip(1) {
            match one {
                '\n' => break,
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '[' if end == '/' => is_class = true,
                ']' => is_class = false,
                _ if one == end && !is_class => {
                    self.copy(at + 1);
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(self.failure("a string or a regular expression does not end on its line"))
    }

    /// Copies the text of a template literal, to its end or to the next code in it.
    fn copy_template(&mut self) -> Result<(), String> {
        let mut before = None;
        for (at, one) in self.rest().char_indices() {
            let is_escaped = before == Some('\\');
            let is_code = before == Some('$') && one == '{';
            before = Some(one).filter(|_| !is_escaped);
            if is_escaped || (!is_code && one != '`') {
                continue;
            }
            if is_code {
                self.open.push(OpenBrace::Substitution);
            }
            self.copy(at + 1);
            return Ok(());
        }
        Err(self.failure("a template literal is not closed"))
    }
}

#[cfg(test)]
mod tests {
    use super::{SourceLanguage, strip};

    fn script(text: &str) -> Result<String, String> {
        strip(text, SourceLanguage::Script)
    }

    #[test]
    fn comments_and_indentation_go_and_lines_stay() {
        let text = "/** a */\nlet b = 1; // c\n  // d\n\tb(); /* e\n   f */ g();\nh/* i */in /* j */ k;\n// l";
        let stripped = "\nlet b = 1;\n\nb();\ng();\nh in   k;\n";
        assert_eq!(script(text), Ok(stripped.to_owned()));
        let text = "/* a */\nb {\n  color: red; /* c */\n\n  background: url(//d/e);\n  content: \"/* f */\";\n  font: 1px/2 g;\n}\n";
        let stripped = "\nb {\ncolor: red;\n\nbackground: url(//d/e);\ncontent: \"/* f */\";\nfont: 1px/2 g;\n}\n";
        assert_eq!(strip(text, SourceLanguage::Style), Ok(stripped.to_owned()));
    }

    #[test]
    fn strings_templates_and_regular_expressions_are_copied_as_they_are() {
        for text in [
            r#"a = "// b"; c = '/* d */'; e = "\"// f\\"; g = '"';"#,
            "a = `// b\n    /* c */ \\` // d \\${ // e $ { $\\{ // f`;",
            "a = `\\\\${b}// c $${d}// e`;",
            r#"html`<a href="https://b">${c(`// ${{ d: "}" }.d} // ${`/*`}`)} /* e */</a>`;"#,
            r#"a = b.split(/["'`]\/\/[/*"]\[\/*/).map((c) => /'/.test(c)); return /\//g;"#,
            "a = b / c / d; e /= f[0] / (g) / 2;",
            "a = [/'/, !/'/, b && /'/]; typeof /'/; c = [...typeof /'/];",
            r#"a = b.in / "/* c */" / d?.of / '//' / 1. / "//";"#,
        ] {
            assert_eq!(script(text), Ok(text.to_owned()));
        }
    }

    #[test]
    fn code_in_templates_is_code() {
        let text = "`  a${\n    b({ c }) // d\n  }  e`; // f";
        assert_eq!(script(text), Ok("`  a${\nb({ c })\n}  e`; ".to_owned()));
    }

    #[test]
    fn what_is_not_certain_is_refused_with_its_line() {
        for (text, line) in [
            ("a;\nif (b) /'/.test(c);", 2),
            ("a = b/c;", 1),
            ("a = b++ / c;", 1),
            ("a;\n--/b/.c;", 2),
            ("{\n}\n/'/.test(a);", 3),
            ("a = 'b\n';", 1),
            ("a = /b\n/;", 1),
            ("a;\n/*/ b", 2),
            ("a = `b${c`;", 1),
            ("a = `b;", 1),
            ("a }", 1),
            ("a {\n", 2),
        ] {
            let refused = script(text).err().unwrap_or_default();
            assert!(refused.starts_with(&format!("line {line}: ")), "{text}: {refused}");
        }
    }
}
