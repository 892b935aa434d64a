#include "admin/event_routes.h"

#include "admin/due_picture.h"
#include "admin/event_feed.h"

namespace tarry::admin {

namespace asio = boost::asio;

asio::awaitable<Reply> get_events(Call& call) {
  Reply reply;
  reply.content_type = "text/event-stream";
  // A proxy that gathers answers would hold events back.
  reply.headers.emplace_back("X-Accel-Buffering", "no");
  reply.stream = call.context.events->open(call.context);
  co_return reply;
}

asio::awaitable<Reply> get_due(Call& call) {
  Reply reply;
  reply.body = co_await call.context.due->text(call.context);
  if (reply.body.empty()) throw Refused{503, "the broker is stopping"};
  reply.body += '\n';
  co_return reply;
}

}  // namespace tarry::admin
