"""A graph convolutional network and graph attention on a toy graph: sparse products, scatter, masks of nodes, FloatTensor adjacency."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter

torch.manual_seed(42)
n, classes = 40, 4
labels = torch.arange(n) % classes
features = F.one_hot(labels, classes).float() + torch.randn(n, classes) * 0.8
edges = torch.randint(0, n, (2, 160))
edges = edges[:, (labels[edges[0]] == labels[edges[1]]) | (torch.rand(160) < 0.3)]
edges = torch.cat([edges, edges.flip(0), torch.arange(n).repeat(2, 1)], dim=1)
edges = torch.unique(edges, dim=1)
degree = torch.zeros(n).scatter_add_(0, edges[0], torch.ones(edges.size(1)))
norm = degree.pow(-0.5)
values = norm[edges[0]] * norm[edges[1]]
adj = torch.sparse_coo_tensor(edges, values, (n, n)).coalesce()
print(adj.shape, adj._nnz(), adj.is_sparse, degree.max().item())


class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super(GraphConvolution, self).__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        output = torch.spmm(adj, torch.mm(input, self.weight))
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return self.__class__.__name__ + " (" + str(self.in_features) + " -> " + str(self.out_features) + ")"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super(GCN, self).__init__()
        self.gc1, self.gc2, self.dropout = GraphConvolution(nfeat, nhid), GraphConvolution(nhid, nclass, bias=False), dropout

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.gc1(x, adj)), self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


class DenseGAT(nn.Module):
    def __init__(self, nfeat, nhid, nclass, nheads=2, alpha=0.2):
        super().__init__()
        self.W = nn.Parameter(torch.empty(size=(nheads, nfeat, nhid)))
        self.a = nn.Parameter(torch.empty(size=(nheads, 2 * nhid, 1)))
        nn.init.xavier_uniform_(self.W.data, gain=1.414)
        nn.init.xavier_uniform_(self.a.data, gain=1.414)
        self.leakyrelu, self.out, self.nhid = nn.LeakyReLU(alpha), nn.Linear(nheads * nhid, nclass), nhid

    def forward(self, x, adj):
        Wh = torch.einsum("nf,hfo->hno", x, self.W)
        e = torch.matmul(Wh, self.a[:, : self.nhid]) + torch.matmul(Wh, self.a[:, self.nhid :]).mT
        zero_vec = -9e15 * torch.ones_like(e)
        attention = F.softmax(torch.where(adj > 0, self.leakyrelu(e), zero_vec), dim=-1)
        h = F.elu(F.dropout(attention, 0.2, self.training) @ Wh)
        return F.log_softmax(self.out(h.permute(1, 0, 2).flatten(1)), dim=1)


class EdgeGAT(nn.Module):
    """Attention over a list of edges: softmax of each node's edges by scatter."""

    def __init__(self, nfeat, nclass):
        super().__init__()
        self.lin, self.att = nn.Linear(nfeat, nclass, bias=False), nn.Parameter(torch.randn(2, nclass) * 0.1)

    def forward(self, x, edges):
        src, dst = edges
        h = self.lin(x)
        score = F.leaky_relu((h * self.att[0]).sum(-1)[src] + (h * self.att[1]).sum(-1)[dst], 0.2)
        top = torch.full((x.size(0),), -1e9).scatter_reduce(0, dst, score, reduce="amax", include_self=True)
        weight = (score - top[dst]).exp()
        total = torch.zeros(x.size(0)).index_add(0, dst, weight)
        message = h[src] * (weight / total[dst]).unsqueeze(-1)
        return F.log_softmax(torch.zeros_like(h).scatter_add(0, dst.unsqueeze(-1).expand_as(message), message), 1)


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    return preds.eq(labels).double().sum() / len(labels)


idx_train, idx_val = torch.LongTensor(range(20)), torch.LongTensor(range(20, 40))
for name, model, graph in (
    ("gcn", GCN(classes, 8, classes, 0.3), adj),
    ("gat", DenseGAT(classes, 6, classes), adj.to_dense()),
    ("edges", EdgeGAT(classes, classes), edges),
):
    print(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    for epoch in range(8):
        model.train()
        optimizer.zero_grad()
        loss_train = F.nll_loss(model(features, graph)[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        model.eval()
        output = model(features, graph)
        print(
            name,
            "Epoch: {:04d}".format(epoch + 1),
            "loss_train: {:.4f}".format(loss_train.item()),
            "loss_val: {:.4f}".format(F.nll_loss(output[idx_val], labels[idx_val]).item()),
            "acc_val: {:.2f}".format(accuracy(output[idx_val], labels[idx_val]).item()),
        )
