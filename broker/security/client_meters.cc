#include "broker/security/client_meters.h"

#include <cstddef>
#include <utility>

namespace tarry::broker {

ClientMeters ClientMeters::find(std::shared_ptr<const SecurityImage> image, QuotaMeters& meters,
                                std::string_view user, std::string_view client_id, MonoTime now) {
  ClientMeters out;
  for (const auto kind : {QuotaKind::produce, QuotaKind::fetch, QuotaKind::request}) {
    const auto found = image->quotas().find(kind, user, client_id);
    if (!found) continue;
    out.of.at(static_cast<std::size_t>(kind)) = {
        found->limit, meters.of(kind, found->by_user, user, found->by_client, client_id, now)};
  }
  for (const auto kind : {QuotaKind::pending_records, QuotaKind::pending_bytes}) {
    if (const auto found = image->quotas().find(kind, user, client_id))
      out.of.at(static_cast<std::size_t>(kind)).limit = found->limit;
  }
  // Kept, because are_of() compares its address with that of the present one.
  out.image = std::move(image);
  out.user = user;
  out.client_id = client_id;
  return out;
}

}  // namespace tarry::broker
