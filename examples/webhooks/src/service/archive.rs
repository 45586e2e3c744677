use diesel::ExpressionMethods;
use diesel_async::RunQueryDsl;
use posta::{Data, DeliveryInfo, Failure, Tx};

use super::Db;
use super::tables::archive;
use crate::message::{EVENT, SIGNATURE, header};
use crate::{Secrets, WebhookReceived};

/// The consumer `archive`: keeps every body with its signature.
///
/// It checks the signature once more, over the bytes that came out at this end: what is archived is
/// what GitHub signed, whatever lies between. A handler is a function with what it needs as
/// arguments; shared state comes as [`Data`].
pub(super) async fn archive(
    message: WebhookReceived,
    tx: &mut Tx<'_, Db>,
    delivery: DeliveryInfo,
    secrets: Data<Secrets>,
) -> Result<(), Failure> {
    let signature = header(&delivery.headers, SIGNATURE)?;
    if !secrets.verify(signature, &message.body) {
        return Err(Failure::new("the payload is not what GitHub signed"));
    }
    diesel::insert_into(archive::table)
        .values((
            archive::delivery.eq(delivery.id.to_string()),
            archive::event.eq(header(&delivery.headers, EVENT)?),
            archive::signature.eq(signature),
            archive::body.eq(&message.body[..]),
        ))
        .execute(tx)
        .await?;
    Ok(())
}
