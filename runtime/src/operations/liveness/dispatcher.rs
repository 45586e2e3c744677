use super::Finding;
use crate::lease::Board;
use crate::message::Slot;
use crate::store::{Database, OutboxStore, Session, StoreError};

/// Looks at a dispatcher: at the first row of its lanes that it could dispatch.
pub(super) async fn look<D: Database>(
    store: &D::Store,
    session: &mut Session<D>,
    board: &Board,
    (index, of): (u8, u8),
) -> Result<Finding, StoreError> {
    let lanes = board.usable().into_iter();
    let lanes: Vec<Slot> = lanes
        .filter(|number| number % of == index)
        .filter_map(Slot::new)
        .collect();
    if lanes.is_empty() {
        return Ok(Finding::Explained);
    }
    let first = store.pending(session, &lanes, &[], 1).await?;
    Ok(match first.first() {
        None => Finding::Well(format!("no row waits in its {} lanes", lanes.len())),
        Some(row) => Finding::Different(format!(
            "row {} of lane {} waits for dispatch and stays the first one",
            row.id.position,
            row.id.slot.number()
        )),
    })
}
