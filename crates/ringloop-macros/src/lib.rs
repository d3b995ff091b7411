//! The attributes of ringloop: `#[ringloop::main]` and `#[ringloop::test]`.
//!
//! Called by: `ringloop`, which exports them (feature `macros`). They read tokens by hand: an attribute
//! that turns an `async fn` into a plain one needs no parser of all of Rust in a user's build.

use proc_macro::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};

/// Runs an `async fn main` in a runtime of its own.
///
/// * `workers = 4`: threads, each with a loop (`Builder::workers`); the function runs on the first.
/// * `driver = "uring"` or `"epoll"`: demands a driver (`Builder::driver`).
/// * `crate = "path"`: where `ringloop` is, if not at `::ringloop`.
///
/// ```
/// #[ringloop::main]
/// async fn main() -> std::io::Result<()> {
///     ringloop::time::yield_now().await;
///     Ok(())
/// }
/// ```
/// ```
/// #[ringloop::main(workers = 2, driver = "epoll")]
/// async fn main() {
///     assert_eq!(ringloop::worker(), 0);
/// }
/// ```
/// The function has no arguments:
/// ```compile_fail
/// #[ringloop::main]
/// async fn main(port: u16) {}
/// ```
/// and is `async`:
/// ```compile_fail
/// #[ringloop::main]
/// fn main() {}
/// ```
/// An unknown option is an error:
/// ```compile_fail
/// #[ringloop::main(threads = 2)]
/// async fn main() {}
/// ```
///
/// # Panics
/// The function panics if the runtime cannot be built, with the reason.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(options, item, false).unwrap_or_else(Fault::into_tokens)
}

/// Runs an `async fn` as a test, in a runtime of its own; the options of `#[ringloop::main]`.
///
/// `RINGLOOP_DRIVER` chooses the driver, so that `cargo test` can run once for each.
///
/// ```
/// #[ringloop::test]
/// async fn sleeps() -> std::io::Result<()> {
///     ringloop::time::sleep(std::time::Duration::from_millis(1)).await;
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(options, item, true).unwrap_or_else(Fault::into_tokens)
}

/// What is wrong, and where.
struct Fault(Span, String);

impl Fault {
    fn new(span: Span, text: &str) -> Self {
        Self(span, text.to_owned())
    }

    fn into_tokens(self) -> TokenStream {
        let text = TokenTree::from(Literal::string(&self.1));
        let call = TokenTree::from(Group::new(Delimiter::Brace, text.into()));
        let tokens = tokens("::core::compile_error!").into_iter().chain([call]);
        tokens.map(|token| at(token, self.0)).collect()
    }
}

fn at(mut token: TokenTree, span: Span) -> TokenTree {
    token.set_span(span);
    token
}

/// Tokens of this file's own source.
fn tokens(source: &str) -> TokenStream {
    source.parse().expect("the source is Rust")
}

fn expand(options: TokenStream, item: TokenStream, is_test: bool) -> Result<TokenStream, Fault> {
    let (path, builder) = builder(options)?;
    let mut function: Vec<TokenTree> = item.into_iter().collect();
    let Some(TokenTree::Group(body)) = function.pop_if(|last| is_group(last, Delimiter::Brace))
    else {
        return Err(Fault::new(Span::call_site(), "expected an async fn with a body"));
    };
    let is_word = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident.to_string() == word);
    let start = function.iter().position(|token| is_word(token, "fn"));
    let keyword = function.iter().position(|token| is_word(token, "async"));
    let (Some(start), Some(keyword)) = (start, keyword.filter(|at| Some(*at) < start)) else {
        return Err(Fault::new(Span::call_site(), "expected an async fn"));
    };
    match function.get(start + 2) {
        Some(TokenTree::Group(arguments)) if arguments.stream().is_empty() => {}
        Some(token) => {
            return Err(Fault::new(
                token.span(),
                "the function can have neither arguments nor generics",
            ));
        }
        None => return Err(Fault::new(Span::call_site(), "expected an async fn")),
    }
    function.remove(keyword);

    // { path::__run(builder, async body) }
    let mut arguments = tokens(&format!("{builder}, async move"));
    arguments.extend([TokenTree::from(body)]);
    let mut call = tokens(&format!("{path}::__run"));
    call.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, arguments))]);
    let attribute =
        if is_test { tokens("#[::core::prelude::v1::test]") } else { TokenStream::new() };
    let body = TokenTree::from(Group::new(Delimiter::Brace, call));
    Ok(attribute.into_iter().chain(function).chain([body]).collect())
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

/// The path of the crate, and the source of the builder.
fn builder(options: TokenStream) -> Result<(String, String), Fault> {
    let (mut path, mut calls) = ("::ringloop".to_owned(), Vec::new());
    let mut tokens = options.into_iter();
    while let Some(name) = tokens.next() {
        let span = name.span();
        let is_equals = |token: &TokenTree| is_punct(token, '=');
        let (Some(_), Some(TokenTree::Literal(value))) =
            (tokens.next().filter(is_equals), tokens.next())
        else {
            return Err(Fault::new(span, "expected `name = literal`"));
        };
        let text = value.to_string();
        match (name.to_string().as_str(), text.trim_matches('"')) {
            ("workers", count) if count.parse::<usize>().is_ok_and(|count| count > 0) => {
                calls.push(format!(".workers({count})"));
            }
            ("workers", _) => {
                return Err(Fault::new(value.span(), "expected a number of at least 1"));
            }
            ("driver", "uring") => calls.push(format!(".driver({CRATE}::Choice::Uring)")),
            ("driver", "epoll") => calls.push(format!(".driver({CRATE}::Choice::Epoll)")),
            ("driver", _) => {
                return Err(Fault::new(value.span(), "expected \"uring\" or \"epoll\""));
            }
            ("crate", named) => named.clone_into(&mut path),
            _ => {
                return Err(Fault::new(
                    span,
                    "unknown option: there are workers, driver and crate",
                ));
            }
        }
        if let Some(next) = tokens.next().filter(|token| !is_punct(token, ',')) {
            return Err(Fault::new(next.span(), "expected a comma"));
        }
    }
    let builder = format!("{path}::Runtime::builder(){}", calls.concat().replace(CRATE, &path));
    Ok((path, builder))
}

/// Stands for the crate's path until that is known.
const CRATE: &str = "$crate";

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}
