//! Kinds that are not stored but answered: access reviews, token reviews, and who one is.
//!
//! How they are decided is in `access`; here is only which is which.

use access::{Authorizer, OwnedAttributes, User, Verdict, review};
use bytes::Bytes;
use meta::{Status, Value, object};

use crate::{
    admit::Admitter,
    answer::{self, Answer},
    api::{Call, options, pod},
    body::RequestBody,
    negotiate, service_account,
};

/// `POST` of a kind that is not stored.
pub(crate) async fn create(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    if &*call.served.definition.kind == "Binding" {
        return pod::bind_named(call, body).await;
    }
    // Whoever asks decides by the answer what others may do.
    crate::authorize::check_in_touch(call.registry)?;
    let format = negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let options = options::write(call.exchange, "CreateOptions", &registry::Anything)?;
    let (mut object, warnings) = call.read_accepted(&options, body).await?;
    let owners = call.registry.owners_of(&call.target, &options, &object);
    Admitter::of(call).answered(&call.target, &mut object).await?;
    let mut answered = match &*call.served.definition.kind {
        "SubjectAccessReview" => access_review(call, &object, review::subject_access_review).await?,
        "LocalSubjectAccessReview" => {
            let namespace = call.target.namespace.clone();
            access_review(call, &object, |it| review::local_subject_access_review(it, &namespace)).await?
        }
        "SelfSubjectAccessReview" => {
            let attributes = review::self_subject_access_review(&object)?;
            let verdict = verdict(call, &call.caller.user, &attributes).await?;
            review::access_review_answer(&object, &verdict)
        }
        "SelfSubjectRulesReview" => {
            let namespace = review::self_subject_rules_review(&object)?;
            let user = &call.caller.user;
            let answer =
                |it: &Authorizer| review::rules_review_answer(&object, &it.rules_for(user, &namespace));
            call.ask(user, &namespace, answer).await?
        }
        "SelfSubjectReview" => {
            review::self_subject_review_answer(&object, &call.caller.user, call.registry.clock().now())
        }
        "TokenReview" => token_review(call, &object).await?,
        kind => {
            let message =
                format!("{kind} is not available: this control plane has no nodes, so nothing is scheduled");
            return Err(Status::not_implemented(message));
        }
    };
    if let Some(owners) = owners {
        object::metadata_mut(&mut answered).insert("managedFields".to_owned(), owners);
    }
    let answer = answer::json(call.exchange, 201, Bytes::from(answered.to_string()), format);
    Ok(warnings.iter().fold(answer, |answer, warning| answer.warn(warning)))
}

async fn access_review(
    call: &Call<'_>,
    object: &Value,
    read: impl Fn(&Value) -> Result<(User, OwnedAttributes), Status>,
) -> Result<Value, Status> {
    let (user, attributes) = read(object)?;
    let verdict = verdict(call, &user, &attributes).await?;
    Ok(review::access_review_answer(object, &verdict))
}

async fn verdict(call: &Call<'_>, user: &User, asked: &OwnedAttributes) -> Result<Verdict, Status> {
    let attributes = asked.for_user(user);
    call.ask(user, attributes.target.namespace(), |it| it.authorize(&attributes)).await
}

async fn token_review(call: &Call<'_>, object: &Value) -> Result<Value, Status> {
    let review::TokenReview { token, audiences: wanted } = review::token_review(object)?;
    let authenticator = &call.dispatch.authenticator;
    let own = authenticator.service_accounts.api_audiences();
    let wanted = if wanted.is_empty() { &own } else { &wanted };
    if let Some(user) = authenticator.tokens.as_ref().and_then(|it| it.lookup(&token)) {
        // Tokens of the file are for this server, and for nobody else.
        let audiences: Vec<String> = wanted.iter().filter(|it| own.contains(it)).cloned().collect();
        return Ok(match audiences.is_empty() {
            false => review::token_review_answer(object, Ok((&user, &audiences))),
            true => review::token_review_answer(object, Err("[invalid bearer token]")),
        });
    }
    Ok(match service_account::authenticate_for(authenticator, &token, wanted).await {
        Some((user, audiences)) => review::token_review_answer(object, Ok((&user, &audiences))),
        None => review::token_review_answer(object, Err("[invalid bearer token]")),
    })
}
