//! The page on which a user logs in with an API key.

use maud::html;

use super::layout::page;

/// The page.
///
/// * `next`: the page to return to, a path of this server.
/// * `refused`: the key given before was not valid.
pub(crate) fn login_page(next: &str, refused: bool) -> String {
    page(
        "Log in",
        None,
        &html! {
            h1 { "Log in" }
            @if refused {
                p { span.bad { "This API key is not valid or was revoked." } }
            }
            form.login method="post" action="/login" {
                input type="hidden" name="next" value=(next);
                label for="key" { "API key" }
                input #key type="password" name="key" required autofocus
                    autocomplete="current-password" spellcheck="false" placeholder="fbk_…";
                button type="submit" { "Log in" }
            }
            p { "Create a key on the server: " code { "forebay key new --name NAME" } ". "
                "The session lasts 12 hours. It is stored in a cookie that scripts cannot read." }
        },
    )
}
